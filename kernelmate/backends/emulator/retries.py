"""Loops that repeat a compare-and-swap, and end after a number of attempts as well.

Under contention each attempt of a thread may fail, as often as others succeed. The comparison of the attempts' counter
is found, so that a launch can be made in which the loop gives up.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.backends.emulator.decode import DecodedKernel, registers_in
from kernelmate.backends.emulator.liveness import operands_of
from kernelmate.backends.emulator.operations import Atomic, Branch, Compute, Exit, Load
from kernelmate.backends.emulator.program import Register

_SHARED_BY_BLOCKS = frozenset({"global", "generic"})


def bounded_retries(decoded: DecodedKernel) -> dict[int, int]:
    """Returns the comparisons by which a loop around a compare-and-swap gives up, with the step of the swap."""
    found: dict[int, int] = {}
    loops = _loops(decoded)
    for number, step in enumerate(decoded.steps):
        operation = step.operation
        if not isinstance(operation, Atomic) or operation.action != "cas" or operation.space not in _SHARED_BY_BLOCKS:
            continue
        around = min((loop for loop in loops if number in loop), key=len, default=None)
        if around is not None:
            base = operation.address.base
            # A loop over several places, as in a hash table, tries others; it does not repeat.
            if isinstance(base, Register) and not any(base.name in decoded.steps[n].writes for n in around):
                found.update(dict.fromkeys(_counted_exits(decoded, around, number), number))
    return found


def _loops(decoded: DecodedKernel) -> list[range]:
    return [
        range(step.operation.target, number + 1)
        for number, step in enumerate(decoded.steps)
        if isinstance(step.operation, Branch) and step.operation.target <= number
    ]


def _counted_exits(decoded: DecodedKernel, loop: range, swap: int) -> Iterator[int]:
    """Yields comparisons of registers that no memory determines, if they and the swap's result lead out of a loop."""
    reads = {n: _reads(decoded, n) for n in loop}
    remembered = _closure(
        decoded, loop, reads, {n for n in loop if isinstance(decoded.steps[n].operation, Atomic | Load)}
    )
    swapped = _closure(decoded, loop, reads, {swap})
    leaving = {decoded.steps[n].guard.name for n in loop if _leaves(decoded, loop, n)}  # type: ignore[union-attr]
    if leaving.isdisjoint(swapped):
        return
    written = {name for n in loop for name in decoded.steps[n].writes}
    for n in loop:
        operation = decoded.steps[n].operation
        compares = isinstance(operation, Compute) and any(kind == "pred" for _, kind in operation.results)
        counted = reads[n] & written and reads[n].isdisjoint(remembered)
        plain = isinstance(operation, Compute) and all(kind != "pred" for _, kind in operation.sources)
        if (
            compares
            and counted
            and plain
            and not leaving.isdisjoint(_closure(decoded, loop, reads, {n}, predicates=True))
        ):
            yield n


def _reads(decoded: DecodedKernel, number: int) -> set[str]:
    return {name for operand in operands_of(decoded.steps[number].operation) for name in registers_in(operand)}


def _closure(
    decoded: DecodedKernel, loop: range, reads: dict[int, set[str]], begin: set[int], *, predicates: bool = False
) -> set[str]:
    """Returns the registers that are computed in a loop from what some steps write; with `predicates`, only by logic operations on predicates."""
    found = {name for n in begin for name in decoded.steps[n].writes}
    changed = True
    while changed:
        changed = False
        for n in loop:
            step = decoded.steps[n]
            if not isinstance(step.operation, Compute) or reads[n].isdisjoint(found):
                continue
            if predicates and not all(kind == "pred" for _, kind in step.operation.sources):
                continue
            if not found.issuperset(step.writes):
                found.update(step.writes)
                changed = True
    return found


def _leaves(decoded: DecodedKernel, loop: range, number: int) -> bool:
    """Returns True for a conditional branch or return that may end a loop: out of it, or its last one back."""
    step = decoded.steps[number]
    if step.guard is None:
        return False
    if isinstance(step.operation, Branch):
        return step.operation.target not in loop or number == loop[-1]
    return isinstance(step.operation, Exit)
