"""Analyses of reads: registers read before they are written, memory reads with unused results, and speculative reads.

A speculative read is a plain one whose value an atomic of the same thread verifies. The compare-and-swap loop in CUDA's
own guide starts with one, and a maximum is often read before it is raised. Formally both race with other threads'
atomics, but the atomic decides whatever the read returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.operations import (
    Atomic,
    Branch,
    BranchTable,
    Compute,
    Exit,
    Load,
    Operation,
    ReadClock,
    Store,
    Trap,
)
from kernelmate.backends.emulator.program import Address, Operand, Register, Symbol
from kernelmate.backends.emulator.types import SIZES


def operands_of(operation: Operation) -> list[Operand]:
    """Returns every operand that an operation reads, except registers written under a guard."""
    if isinstance(operation, Compute):
        return [operand for operand, _ in operation.sources]
    found: list[Operand] = []
    for name in ("value", "transactions", "swap", "lane", "clamp", "mask", "source", "number", "count", "index"):
        operand = getattr(operation, name, None)
        if operand is not None and not isinstance(operand, int | str):
            found.append(operand)
    found += getattr(operation, "sources", ())
    base = getattr(getattr(operation, "address", None), "base", None)
    return found + ([base] if base is not None else [])


def deciding_registers(steps: Sequence[DecodedStep], start: int, end: int) -> tuple[str, ...] | None:
    """Returns the registers that a loop writes and that decide if it ends; None if a clock does.

    Args:
        steps: the kernel's instructions.
        start: the first instruction of the loop.
        end: the instruction after one of its branches back; it extends to the last of them.
    """
    back = [n for n, step in enumerate(steps) if isinstance(step.operation, Branch) and step.operation.target == start]
    loop = range(start, max(end, *(n + 1 for n in back)))
    jumps = [
        (n, step.operation.target, step.guard.name)
        for n in loop
        if isinstance((step := steps[n]).operation, Branch) and step.guard is not None
    ]
    wanted: set[str] = set()

    def decided(number: int) -> set[str]:
        """Returns the predicates that decide if an instruction of the loop is executed."""
        guard = steps[number].guard
        around = {name for at, target, name in jumps if at < number < target or start < target <= number < at}
        return around | ({guard.name} if guard is not None else set())

    for n in loop:
        operation = steps[n].operation
        leaves = isinstance(operation, Branch) and (operation.target not in loop or n == loop[-1])
        if leaves or isinstance(operation, Exit | BranchTable):
            wanted |= decided(n)
    found: set[int] = set()
    while more := [n for n in loop if n not in found and not wanted.isdisjoint(steps[n].writes)]:
        for n in more:
            operation = steps[n].operation
            if isinstance(operation, ReadClock):
                return None
            found.add(n)
            wanted |= decided(n) | {name for operand in operands_of(operation) for name in registers_in(operand)}
    return tuple(dict.fromkeys(name for n in sorted(found) for name in steps[n].writes))


def read_at_entry(decoded: DecodedKernel) -> frozenset[str]:
    """Returns registers that some path through the kernel reads before writing them."""
    return liveness(decoded)[1][0] if decoded.blocks else frozenset()


def liveness(
    decoded: DecodedKernel,
) -> tuple[list[tuple[frozenset[str], frozenset[str]]], list[frozenset[str]], list[frozenset[str]]]:
    """Returns reads and writes of each piece, and registers live before and after each."""
    local = [_local_needs(decoded, block) for block in decoded.blocks]
    live_in = [reads for reads, _ in local]
    live_out: list[frozenset[str]] = [frozenset()] * len(local)
    following = [successors(decoded, block) for block in decoded.blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(local))):
            out = frozenset().union(*(live_in[after] for after in following[number]))
            reads, writes = local[number]
            into = reads | (out - writes)
            if out != live_out[number] or into != live_in[number]:
                live_out[number], live_in[number] = out, into
                changed = True
    return local, live_in, live_out


def _local_needs(decoded: DecodedKernel, block: BasicBlock) -> tuple[frozenset[str], frozenset[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for step in decoded.steps[block.start : block.end]:
        names = {name for operand in operands_of(step.operation) for name in registers_in(operand)}
        if step.guard is not None:
            names |= {step.guard.name, *step.writes}
        reads |= names - writes
        writes |= set(step.writes)
    return frozenset(reads), frozenset(writes)


def successors(decoded: DecodedKernel, block: BasicBlock) -> list[int]:
    """Returns the blocks that may follow a block."""
    step = decoded.steps[block.end - 1]
    operation = step.operation
    after = [block.index + 1] if block.index + 1 < len(decoded.blocks) else []
    if isinstance(operation, Branch):
        target = [decoded.block_at[operation.target]]
        return target if step.guard is None else target + after
    if isinstance(operation, BranchTable):
        return [decoded.block_at[target] for target in operation.targets] + after
    if isinstance(operation, Exit | Trap) and step.guard is None:
        return []
    return after


def unused_reads(steps: Sequence[DecodedStep]) -> frozenset[int]:
    """Returns numbers of loads and shuffles whose results are unused: not stored, branched on, or used as an address.

    A value stored to local memory, as `volatile` variables are, counts as used if local memory is loaded.
    """
    reads = [_reads(step) for step in steps]
    pure = {number for number, step in enumerate(steps) if step.writes and _is_pure(step.operation)}
    kept = {n for n, step in enumerate(steps) if isinstance(step.operation, Store) and step.operation.space == "local"}
    used: set[str] = set()
    pending = [number for number in range(len(steps)) if number not in pure and number not in kept]
    while pending:
        for number in pending:
            step = steps[number]
            used |= reads[number]
            if step.guard is not None:
                used.add(step.guard.name)
            if isinstance(step.operation, Load) and step.operation.space in {"local", "generic"}:
                pure |= kept
                kept = set()
        pending = [number for number in pure if kept.isdisjoint({number}) and _is_needed(steps[number], used)]
        pure.difference_update(pending)
    exchanges = (
        number
        for number, step in enumerate(steps)
        if isinstance(step.operation, Atomic) and step.operation.action == "exch" and used.isdisjoint(step.writes)
    )
    loads = (n for n in pure if isinstance(operation := steps[n].operation, Load) and operation.space != "param")
    return frozenset((*loads, *exchanges))


def _is_pure(operation: Operation) -> bool:
    return isinstance(operation, Compute | Load)


def _is_needed(step: DecodedStep, used: set[str]) -> bool:
    return isinstance(step.operation, Store) or not used.isdisjoint(step.writes)


_DECIDING = frozenset({"cas", "min", "max"})
"""Atomics that compare the memory's contents before they change it."""

_WORDS = frozenset({4, 8})
"""Bytes that are read in one piece."""


def guessing_loads(steps: Sequence[DecodedStep]) -> frozenset[int]:
    """Returns numbers of plain loads followed by a deciding atomic of the same address and width.

    A compare-and-swap with the value read decides only if something depends on whether it succeeds: without a further
    attempt, what another thread stored in between leaves the thread's own value out.
    """
    named = _named(steps)
    decided: dict[tuple[str, int, str], list[int]] = {}
    found = set()
    for number in reversed(range(len(steps))):
        operation = steps[number].operation
        if isinstance(operation, Atomic) and operation.action in _DECIDING:
            place = _place(operation.address, operation.kind, named)
            if place is not None:
                decided.setdefault(place, []).append(number)
        elif (
            isinstance(operation, Load)
            and len(operation.results) == 1
            and not operation.synchronizing
            and (place := _place(operation.address, operation.kind, named)) in decided
            and any(_decides(steps, number, atomic) for atomic in decided[place])
        ):
            found.add(number)
    return frozenset(found)


def _decides(steps: Sequence[DecodedStep], load: int, atomic: int) -> bool:
    operation = steps[atomic].operation
    assert isinstance(operation, Atomic)
    if operation.action != "cas" or _derived(steps, load).isdisjoint(registers_in(operation.value)):
        return True
    outcome = _derived(steps, atomic)
    return any(not outcome.isdisjoint(_observed(steps, number)) for number in range(len(steps)))


def _derived(steps: Sequence[DecodedStep], number: int) -> set[str]:
    """Returns the registers that computations make of an instruction's results, and the results themselves."""
    found, before = set(steps[number].writes), 0
    while len(found) > before:
        before = len(found)
        for step in steps:
            if isinstance(step.operation, Compute) and not found.isdisjoint(_reads(step)):
                found.update(step.writes)
    return found


def _observed(steps: Sequence[DecodedStep], number: int) -> set[str]:
    """Returns registers that an instruction uses otherwise than to compute; a store counts if memory is read after it."""
    step = steps[number]
    operation = step.operation
    if isinstance(operation, Compute):
        return set()
    guard = set() if step.guard is None else {step.guard.name}
    if isinstance(operation, Store) and operation.space.startswith("shared"):
        again = any(isinstance(one.operation, Branch) and one.operation.target <= number for one in steps[number:])
        later = (one.operation for one in (steps if again else steps[number:]))
        if not any(isinstance(one, Load) and one.space.startswith(("shared", "generic")) for one in later):
            return guard
    return guard | _reads(step)


def _reads(step: DecodedStep) -> set[str]:
    return {name for operand in operands_of(step.operation) for name in registers_in(operand)}


def _named(steps: Sequence[DecodedStep]) -> dict[str, Symbol]:
    """Returns registers that hold the address of a variable."""
    found = {}
    for step in steps:
        if isinstance(step.operation, Compute) and step.opcode.startswith("mov.") and len(step.writes) == 1:
            operand = step.operation.sources[0][0]
            if isinstance(operand, Symbol):
                found[step.writes[0]] = operand
    return found


def _place(address: Address, kind: str, named: Mapping[str, Symbol]) -> tuple[str, int, str] | None:
    """Returns the address of an access as far as its text determines it: base name, offset, and width in bits."""
    base, offset = address.base, address.offset
    if isinstance(base, Register) and base.name in named:
        base = named[base.name]
    if isinstance(base, Symbol):
        offset += base.offset
    if base is None or SIZES[kind] not in _WORDS:
        return None
    return base.name, offset, str(8 * SIZES[kind])
