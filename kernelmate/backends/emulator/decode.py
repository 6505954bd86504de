"""Decodes linked instructions into operations and basic blocks; refuses unknown instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmate.backends.emulator.frames import STACK_BYTES
from kernelmate.backends.emulator.instructions import DECODERS, Unsupported
from kernelmate.backends.emulator.link import LinkedKernel, LinkRefused, plain_name
from kernelmate.backends.emulator.matrix_operations import (
    FragmentLoad,
    FragmentStore,
    MatrixLoad,
    MatrixMultiply,
    MatrixStore,
    WarpgroupMultiply,
)
from kernelmate.backends.emulator.merging import served_loads
from kernelmate.backends.emulator.operations import (
    WARP_OPERATIONS,
    Assert,
    Atomic,
    Barrier,
    Branch,
    BranchTable,
    ClusterBarrier,
    Compute,
    Exit,
    Load,
    NoOperation,
    Operation,
    PhaseBarrier,
    Print,
    Store,
    SurfaceAccess,
    TextureFetch,
    Trap,
)
from kernelmate.backends.emulator.program import (
    Instruction,
    Operand,
    Position,
    Register,
    RegisterPair,
    Special,
    Symbol,
    TensorAddress,
    Vector,
)
from kernelmate.backends.emulator.ptx import refusal
from kernelmate.backends.emulator.special_registers import is_known
from kernelmate.backends.emulator.types import SIZES

_WITH_RESULTS = Load | MatrixLoad | MatrixMultiply | FragmentLoad | WarpgroupMultiply | TextureFetch | SurfaceAccess


@dataclass(frozen=True, slots=True)
class DecodedStep:
    """One operation with its guard and its position in the user's text; `writes` names the registers it writes."""

    operation: Operation
    guard: Register | None
    position: Position | None
    opcode: str
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """A basic block: steps `start` to `end` (exclusive).

    Attributes:
        label: its first label, or `entry`, or `.N`.
        gathers: True if it starts with an operation that waits for the lanes of its mask.
        spins: True if it ends with the backward branch of a loop that waits for other threads' writes.
        contended: True if it starts with an atomic that other warps may disturb (`contention`).
        retries: True if it ends with the backward branch of a loop that repeats an atomic until it succeeds.
    """

    index: int
    start: int
    end: int
    label: str
    gathers: bool
    spins: bool
    contended: bool = False
    retries: bool = False


@dataclass(frozen=True, slots=True)
class DecodedKernel:
    """A kernel as operations in basic blocks. `block_at` gives the block that starts at a step.

    `served` gives the bytes with which a shared-memory load is expected to execute, if not its own size. `unused` are
    loads and shuffles with unused results (`liveness.py`). `detours` gives, by the step of a barrier, the ends of
    threads that bypassed it (`barrier_exits.py`).
    """

    linked: LinkedKernel
    steps: tuple[DecodedStep, ...]
    blocks: tuple[BasicBlock, ...]
    block_at: Mapping[int, int]
    served: Mapping[int, int] = field(default_factory=dict)
    detours: Mapping[int, frozenset[int]] = field(default_factory=dict)
    unused: frozenset[int] = frozenset()


def decode(linked: LinkedKernel) -> DecodedKernel:
    """Decodes every instruction.

    Raises:
        Refused: an instruction, or a form of one, is not supported; the message names it.
    """
    steps = []
    for instruction in linked.instructions:
        try:
            operation = _operation(instruction, linked)
            _check_widths(operation, linked)
            writes = tuple(results_of(operation))
            steps.append(DecodedStep(operation, instruction.guard, instruction.position, instruction.opcode, writes))
        except Unsupported as unsupported:
            raise LinkRefused(refusal(instruction.opcode, str(unsupported)), instruction.position) from None
        except (ValueError, IndexError) as error:
            raise LinkRefused(
                f"the PTX instruction {instruction.opcode} cannot be read: {error}", instruction.position
            ) from None
    blocks = _blocks(linked, steps)
    at = {block.start: block.index for block in blocks}
    return DecodedKernel(linked, tuple(steps), blocks, at, served_loads(linked, steps, blocks))


def _operation(instruction: Instruction, linked: LinkedKernel) -> Operation:
    for operand in instruction.operands:
        _check_specials(operand)
    if instruction.name == "bra":
        return Branch(_target(instruction.operands[0], linked))
    if instruction.name == "brx":
        index, table = instruction.operands
        if not isinstance(table, Symbol) or table.name not in linked.tables:
            raise Unsupported("brx without its table")
        return BranchTable(tuple(linked.labels[name] for name in linked.tables[table.name]), index)
    if instruction.name == "call":
        return _host_call(instruction)
    if instruction.name == "trap" and len(instruction.parts) > 1:
        return _linkers_trap(instruction)
    decoder = DECODERS.get(instruction.name)
    if decoder is None:
        raise Unsupported(instruction.opcode)
    return decoder(instruction)


def _linkers_trap(instruction: Instruction) -> Trap:
    """Returns True for the trap that the linker inserts where a call cannot continue."""
    if instruction.parts[1] == "pointer":
        return Trap("the kernel called through a pointer that is not a function's address")
    (function,) = instruction.operands
    name = plain_name(function.name) if isinstance(function, Symbol) else "a function"
    return Trap(
        f"{name} calls itself so deep that a GPU would run out of the {STACK_BYTES} bytes of stack that a thread has "
        "unless cudaLimitStackSize is raised (bytes per call are estimated); bound the depth, or keep a stack of your own"
    )


def _check_widths(operation: Operation, linked: LinkedKernel) -> None:
    """Checks that every computed operand fits its register, on which binding relies."""
    if not isinstance(operation, Compute):
        return
    for operand, kind in (*operation.results, *operation.sources):
        if isinstance(operand, Register):
            held = linked.registers.get(operand.name)
            if held is None:
                raise Unsupported(f"undeclared register {operand.name}")
            if (held == "pred") != (kind == "pred") or SIZES[kind] > SIZES[held]:
                raise Unsupported(f"a .{kind} operand in the .{held} register {operand.name}")


def _host_call(instruction: Instruction) -> Operation:
    names = tuple(operand.name for operand in instruction.operands if isinstance(operand, Symbol))
    if instruction.parts[1] == "vprintf":
        return Print(*names)
    return Assert(names)


def _target(operand: Operand, linked: LinkedKernel) -> int:
    if not isinstance(operand, Symbol) or operand.name not in linked.labels:
        raise Unsupported("branch to an unknown label")
    return linked.labels[operand.name]


def _check_specials(operand: Operand) -> None:
    if isinstance(operand, Special) and not is_known(operand.name):
        raise Unsupported(f"special register {operand.name}")
    if isinstance(operand, TensorAddress):
        operand = operand.coordinates
    if isinstance(operand, Vector):
        for item in operand.items:
            _check_specials(item)


def _blocks(linked: LinkedKernel, steps: list[DecodedStep]) -> tuple[BasicBlock, ...]:
    starts = {0}
    for index, step in enumerate(steps):
        operation = step.operation
        if isinstance(operation, Branch):
            starts |= {operation.target, index + 1}
        elif isinstance(operation, BranchTable):
            starts |= {*operation.targets, index + 1}
        elif isinstance(operation, Exit | Barrier | ClusterBarrier | Trap):
            starts.add(index + 1)
        elif isinstance(operation, WARP_OPERATIONS):
            starts.add(index)
    starts |= set(linked.labels.values())
    ordered = sorted(start for start in starts if start < len(steps))
    names = {index: label for label, index in reversed(list(linked.labels.items()))}
    bounds = [*ordered, len(steps)]
    return tuple(
        BasicBlock(
            number,
            start,
            bounds[number + 1],
            names.get(start, f".{start}" if start else "entry"),
            isinstance(steps[start].operation, WARP_OPERATIONS),
            any(_waits(*one) for one in _ending(steps, start, bounds[number + 1])),
            retries=any(isinstance(one.operation, Atomic) for one, _ in _ending(steps, start, bounds[number + 1])),
        )
        for number, start in enumerate(ordered)
    )


def _ending(steps: list[DecodedStep], start: int, end: int) -> list[tuple[DecodedStep, list[DecodedStep]]]:
    """Returns the steps that decide whether a loop whose backward branch is here ends, each with the loop's steps."""
    last = steps[end - 1].operation
    if not isinstance(last, Branch) or last.target > start:
        return []
    loop = range(last.target, end)
    wanted: set[str] = set()
    around: list[tuple[int, Register]] = []
    for number in loop:
        operation, guard = steps[number].operation, steps[number].guard
        leaves = operation is last or (isinstance(operation, Branch) and operation.target not in loop)
        if leaves or isinstance(operation, Exit):
            # An exit without a guard is decided by the branches around it.
            wanted |= {one.name for target, one in around if target > number} if guard is None else {guard.name}
        elif isinstance(operation, Branch) and guard is not None:
            around.append((operation.target, guard))
    writers = [steps[number] for number in loop]
    return [(step, writers) for step in _behind(wanted, writers)]


def _behind(wanted: set[str], writers: list[DecodedStep]) -> list[DecodedStep]:
    """Returns the steps of a loop that compute some registers, following the computations in the loop."""
    wanted = set(wanted)
    found: dict[int, DecodedStep] = {}
    grown = True
    while grown:
        grown = False
        for number, step in enumerate(writers):
            if number in found or wanted.isdisjoint(step.writes):
                continue
            found[number] = step
            grown = True
            if isinstance(step.operation, Compute):
                wanted |= {name for operand, _ in step.operation.sources for name in registers_in(operand)}
    return list(found.values())


def _waits(step: DecodedStep, writers: list[DecodedStep]) -> bool:
    """Returns True if a step of a loop reads what only another thread can change.

    A compare-and-swap with a value that the loop has read is the retry of an update, which always succeeds for some
    thread; with any other value it waits for that value.
    """
    operation = step.operation
    if isinstance(operation, Load):
        return operation.synchronizing
    if isinstance(operation, PhaseBarrier):
        return operation.action == "test"
    if not isinstance(operation, Atomic):
        return False
    compared = _behind(set(registers_in(operation.value)), writers) if operation.action == "cas" else []
    return not any(isinstance(step.operation, Load | Atomic) for step in compared)


def registers_in(operand: Operand | None) -> list[str]:
    """Returns the names of the registers in an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Vector):
        return [name for item in operand.items for name in registers_in(item)]
    if isinstance(operand, RegisterPair):
        return registers_in(operand.first) + registers_in(operand.second)
    return []


def results_of(operation: Operation) -> list[str]:
    """Returns the names of the registers that an operation writes."""
    if isinstance(operation, Compute):
        return [name for operand, _ in operation.results for name in registers_in(operand)]
    if isinstance(operation, _WITH_RESULTS):
        return [name for operand in operation.results for name in registers_in(operand)]
    if isinstance(
        operation,
        Store | MatrixStore | FragmentStore | Branch | BranchTable | Exit | Trap | Print | Assert | NoOperation,
    ):
        return []
    names = []
    for attribute in ("result", "predicate"):
        operand = getattr(operation, attribute, None)
        names += registers_in(operand[0] if isinstance(operand, tuple) else operand)
    return names
