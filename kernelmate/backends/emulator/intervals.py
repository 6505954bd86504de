"""Value ranges of integer registers in one launch, from its shape and its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kernelmate.backends.emulator.decode import Decoded, DecodedStep
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import Compute
from kernelmate.backends.emulator.program import Immediate, Operand, Register, Special
from kernelmate.backends.emulator.types import SIZES

Interval = tuple[int, int]
"""Lowest and highest value, both included; signed."""


def intervals_of(decoded: Decoded, machine: Machine) -> Mapping[str, Interval]:
    """Returns value intervals of registers with a single definition, as far as known."""
    written: Counter[str] = Counter()
    for step in decoded.steps:
        written.update(step.writes)
    known: dict[str, Interval] = {}
    for name, raw in machine.registers.constants.items():
        if raw.dtype != bool:
            value = int(raw.view(f"i{raw.itemsize}")[0])
            known[name] = (value, value)
    for step in decoded.steps:
        operation = step.operation
        if not isinstance(operation, Compute) or len(operation.results) != 1:
            continue
        operand, kind = operation.results[0]
        if not isinstance(operand, Register) or written[operand.name] != 1 or operand.name in known:
            continue
        found = _result(step, operation, known, machine)
        if found is not None and _fits(found, kind):
            known[operand.name] = found
    return _KnownIntervals(known, machine)


class _KnownIntervals(dict[str, Interval]):
    """Intervals by register, with the launch at hand for special registers."""

    def __init__(self, known: Mapping[str, Interval], machine: Machine) -> None:
        super().__init__(known)
        self.machine = machine


def _fits(interval: Interval, kind: str) -> bool:
    bits = 8 * SIZES[kind] if kind in SIZES else 0
    return bits > 0 and -(1 << (bits - 1)) <= interval[0] and interval[1] < 1 << (bits - 1)


def wraps(step: DecodedStep, intervals: Mapping[str, Interval]) -> bool:
    """True if a linear step may leave the signed range of its result."""
    operation = step.operation
    assert isinstance(operation, Compute)
    kind = operation.results[0][1]
    if step.opcode.split(".")[0] in {"mov", "cvta", "or", "neg"}:
        return False
    if SIZES[kind] == 8:
        return False
    machine = intervals.machine if isinstance(intervals, _KnownIntervals) else None
    found = _result(step, operation, intervals, machine)
    return found is None or not _fits(found, kind)


def _of(operand: Operand, kind: str, known: Mapping[str, Interval], machine: Machine | None) -> Interval | None:
    if isinstance(operand, Immediate):
        bits = 8 * SIZES.get(kind, 8)
        value = operand.bits & ((1 << bits) - 1)
        value = value - (1 << bits) if value >> (bits - 1) else value
        return value, value
    if isinstance(operand, Register):
        return known.get(operand.name)
    if isinstance(operand, Special) and machine is not None:
        return _special(operand.name, machine)
    return None


def _special(name: str, machine: Machine) -> Interval | None:
    base, _, axis = name.partition(".")
    lanes = machine.lanes
    if axis and base in {"%tid", "%ntid"}:
        side = lanes.block_shape["xyz".index(axis)]
        return (0, side - 1) if base == "%tid" else (side, side)
    if axis and base in {"%ctaid", "%nctaid"}:
        side = lanes.grid_shape["xyz".index(axis)]
        return (0, side - 1) if base == "%ctaid" else (side, side)
    return (0, 31) if name == "%laneid" else None


def _result(
    step: DecodedStep, operation: Compute, known: Mapping[str, Interval], machine: Machine | None
) -> Interval | None:
    name = step.opcode.split(".")[0]
    sources = [_of(operand, kind, known, machine) for operand, kind in operation.sources]
    if name == "and":
        # With a non-negative mask the result lies between zero and the mask.
        tops = [source[1] for source in sources if source is not None and source[0] >= 0]
        return (0, min(tops)) if tops else None
    complete = [source for source in sources if source is not None]
    if len(complete) != len(sources):
        return None
    return _combined(name, step, complete)


def _combined(name: str, step: DecodedStep, sources: list[Interval]) -> Interval | None:
    first = sources[0]
    if name in {"mov", "cvt", "cvta"}:
        negative = first[0] < 0 and step.opcode.split(".")[-1].startswith("u")
        return None if negative else first
    if name == "add":
        return first[0] + sources[1][0], first[1] + sources[1][1]
    if name == "sub":
        return first[0] - sources[1][1], first[1] - sources[1][0]
    if name in {"mul", "mad"} and "hi" not in step.opcode:
        if "wide" in step.opcode and step.opcode.endswith("u32") and min(first[0], sources[1][0]) < 0:
            return None
        products = [a * b for a in first for b in sources[1]]
        low, high = min(products), max(products)
        return (low + sources[2][0], high + sources[2][1]) if name == "mad" else (low, high)
    if name == "shl" and sources[1][0] == sources[1][1] and 0 <= sources[1][0] < 64:
        return first[0] << sources[1][0], first[1] << sources[1][0]
    if name == "shr" and sources[1][0] == sources[1][1] and 0 <= sources[1][0] < 64 and first[0] >= 0:
        return first[0] >> sources[1][0], first[1] >> sources[1][0]
    if name in {"min", "max"}:
        pick = min if name == "min" else max
        return pick(first[0], sources[1][0]), pick(first[1], sources[1][1])
    if name == "or" and all(source[0] >= 0 for source in sources):
        return 0, (1 << max(source[1] for source in sources).bit_length()) - 1
    if name == "rem" and sources[1][0] > 0 and first[0] >= 0:
        return 0, min(first[1], sources[1][1] - 1)
    if name == "div" and sources[1][0] > 0 and first[0] >= 0:
        return first[0] // sources[1][1], first[1] // sources[1][0]
    return None
