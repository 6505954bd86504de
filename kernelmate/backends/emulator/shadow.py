"""Detects 32-bit index arithmetic that wraps on its way to an address.

Every register on the way to an access's address has a 64-bit shadow, the value it would have without wrapping. If an
address differs from its shadow, some step has wrapped. Only sums, products, shifts, extensions and signed remainders
carry a shadow: masks, unsigned remainders, shifts to the right and the like are used by hashes and random numbers,
which wrap on purpose, and reset the shadow to the register. (Signed arithmetic must not wrap in C++.) Registers whose
intervals prove that they cannot wrap have no shadow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.decode import DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.matrix_operations import FragmentLoad, FragmentStore
from kernelmate.backends.emulator.operations import Atomic, BulkCopy, Compute, Load, Store
from kernelmate.backends.emulator.program import Address, Immediate, Operand, Position, Register, Special
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, values_of
from kernelmate.backends.emulator.types import SIZES, Array
from kernelmate.records import FindingCode

Interval = tuple[int, int]
"""Lowest and highest value, both included; signed."""


def intervals_of(decoded: DecodedKernel, machine: Machine) -> Mapping[str, Interval]:
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


_LINEAR: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "shl": lambda a, b: a << b,
    "neg": lambda a: -a,
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvta": lambda a: a,
    "or": lambda a, b: a | b,
    "rem": lambda a, b: np.asarray(np.fmod(a, b)),
}
ADDRESSING = Load | Store | Atomic | FragmentLoad | FragmentStore | BulkCopy
"""Operations whose addresses are compared with shadows."""
_LEAST, _MOST = -(1 << 31), (1 << 32) - 1
"""Range of 32-bit integers, signed and unsigned ones."""
_INTEGER_KINDS = frozenset({"s32", "u32", "s64", "u64", "b32", "b64", "s16", "u16", "b16"})


def is_linear(step: DecodedStep) -> bool:
    """True if the step carries a shadow from its sources to its result."""
    operation = step.operation
    if not isinstance(operation, Compute) or len(operation.results) != 1:
        return False
    parts = step.opcode.split(".")
    if parts[0] not in _LINEAR or any(part in {"hi", "sat", "cc", "pred"} for part in parts):
        return False
    kinds = {kind for _, kind in operation.results} | {kind for _, kind in operation.sources}
    if not kinds <= _INTEGER_KINDS or not isinstance(operation.results[0][0], Register):
        return False
    if parts[0] == "rem" and parts[-1] not in {"s32", "s64"}:
        return False
    if parts[0] == "shl" and not isinstance(operation.sources[1][0], Immediate):
        return False
    if parts[0] == "cvt":
        # A conversion to fewer bits truncates on purpose.
        return SIZES[operation.results[0][1]] >= SIZES[operation.sources[0][1]]
    return True


def address_registers(decoded: DecodedKernel) -> list[str]:
    """Returns registers that hold addresses of global or generic accesses."""
    names: dict[str, None] = {}
    for step in decoded.steps:
        operation = step.operation
        if isinstance(operation, ADDRESSING) and operation.space in {"global", "generic"}:
            base = operation.address.base
            if isinstance(base, Register):
                names[base.name] = None
    return list(names)


@dataclass(frozen=True, slots=True)
class Slice:
    """Linear definitions on the way to an address: steps by the register they write."""

    definitions: Mapping[str, tuple[int, ...]]
    linear: frozenset[str]


def slice_of(decoded: DecodedKernel) -> Slice:
    """Returns the backward slice of all addresses through linear steps."""
    definitions: dict[str, list[int]] = {}
    for number, step in enumerate(decoded.steps):
        for name in step.writes:
            definitions.setdefault(name, []).append(number)
    linear: set[str] = set()
    queue = address_registers(decoded)
    seen = set(queue)
    while queue:
        name = queue.pop()
        for number in definitions.get(name, ()):
            step = decoded.steps[number]
            if not is_linear(step):
                continue
            linear.add(name)
            assert isinstance(step.operation, Compute)
            for operand, _ in step.operation.sources:
                for source in registers_in(operand):
                    if source not in seen:
                        seen.add(source)
                        queue.append(source)
    return Slice({name: tuple(numbers) for name, numbers in definitions.items() if name in linear}, frozenset(linear))


class Shadows:
    """The shadows of one launch."""

    def __init__(self, decoded: DecodedKernel, machine: Machine, found: Slice) -> None:
        self._machine = machine
        self._slice = found
        self._intervals = intervals_of(decoded, machine)
        self._arrays: dict[str, Array] = {}
        for name in self._followed(decoded):
            self._arrays[name] = np.zeros(machine.lanes.count, np.int64)

    def _followed(self, decoded: DecodedKernel) -> set[str]:
        """Returns registers that may hold wrapped values: those that may wrap, and values computed from them."""
        constants = self._machine.registers.constants
        followed: set[str] = set()
        changed = True
        while changed:
            changed = False
            for name, numbers in self._slice.definitions.items():
                if name in followed or name in constants:
                    continue
                steps = [decoded.steps[number] for number in numbers]
                if any(self._matters(step, followed) for step in steps if is_linear(step)):
                    followed.add(name)
                    changed = True
        return followed

    def _matters(self, step: DecodedStep, followed: set[str]) -> bool:
        operation = step.operation
        assert isinstance(operation, Compute)
        sources = {name for operand, _ in operation.sources for name in registers_in(operand)}
        return bool(sources & followed) or wraps(step, self._intervals)

    def __bool__(self) -> bool:
        return bool(self._arrays)

    def follow(self, step: DecodedStep, bound: Bound) -> Bound:
        """Returns `bound` with an update of its shadow before it."""
        names = [name for name in step.writes if name in self._arrays]
        if not names:
            return bound
        if not is_linear(step):
            return self._anew(names, bound)
        operation = step.operation
        assert isinstance(operation, Compute)
        target = self._arrays[names[0]]
        function = _LINEAR[step.opcode.split(".")[0]]
        widens = _extends_unsigned(step, operation)
        sources = [
            self._source(operand, kind, index in widens) for index, (operand, kind) in enumerate(operation.sources)
        ]
        # Sums and products in 32 bits are the same for signed and unsigned numbers, so that a register without a shadow
        # may hold either: what leaves the range with signed ones is computed again with unsigned ones.
        narrow = SIZES[operation.results[0][1]] == SIZES["u32"] and any(self._may_be_unsigned(operation))
        others = [
            self._source(operand, kind, index in widens or may_be)
            for index, ((operand, kind), may_be) in enumerate(
                zip(operation.sources, self._may_be_unsigned(operation), strict=True)
            )
        ]

        def run(group: Group | None, active: Group) -> None:
            where = ... if group is None else group
            ideal = function(*[source(group) for source in sources])
            if narrow and (outside := (ideal < _LEAST) | (ideal > _MOST)).any():
                unsigned = function(*[source(group) for source in others])
                ideal = np.where(outside & (unsigned >= _LEAST) & (unsigned <= _MOST), unsigned, ideal)
            target[where] = ideal
            bound(group, active)

        return run

    def _may_be_unsigned(self, operation: Compute) -> list[bool]:
        return [
            isinstance(operand, Register) and operand.name not in self._arrays and SIZES[kind] == SIZES["u32"]
            for operand, kind in operation.sources
        ]

    def _anew(self, names: list[str], bound: Bound) -> Bound:
        """Returns a step that resets the shadow to the register, signed."""
        registers = self._machine.registers
        pairs = []
        for name in names:
            storage = registers.storage(name)
            pairs.append((self._arrays[name], storage.view(np.dtype(f"i{storage.itemsize}"))))

        def run(group: Group | None, active: Group) -> None:
            bound(group, active)
            where = ... if group is None else group
            for shadow, register in pairs:
                shadow[where] = register[where]

        return run

    def _source(self, operand: Operand, kind: str, unsigned: bool) -> Callable[[Group | None], Any]:
        """Returns the 64-bit value of a source: its shadow, or the register as a signed number."""
        registers = self._machine.registers
        signed = f"s{8 * SIZES[kind]}"
        value = registers.read(operand, signed)
        if not isinstance(operand, Register) or operand.name not in self._arrays:
            if unsigned:
                value = registers.read(operand, "u" + signed[1:])
            if isinstance(value, ConstantOperand):
                fixed = np.int64(int(value.value))
                return lambda group: fixed
            return lambda group: values_of(value, group).astype(np.int64)
        shadow = self._arrays[operand.name]
        if not unsigned:
            return lambda group: shadow if group is None else shadow[group]
        actual = registers.read(operand, "u" + signed[1:])

        def extended(group: Group | None) -> Array:
            ideal = shadow if group is None else shadow[group]
            # PTX does not distinguish signed from unsigned sums: a small negative number is equivalent to the large
            # positive one after zero extension.
            return np.where((ideal < 0) & (ideal >= -(2**31)), values_of(actual, group).astype(np.int64), ideal)

        return extended

    def check(self, address: Address, position: Position | None, bound: Bound) -> Bound:
        """Returns the access `bound` with a comparison of its address with the shadow before it."""
        base = address.base
        if not isinstance(base, Register) or base.name not in self._arrays:
            return bound
        machine = self._machine
        if machine.registers.width(base.name) < SIZES["u64"]:
            return bound  # an address in a window, in a register that also leads to a global one
        shadow = self._arrays[base.name]
        register = machine.registers.storage(base.name).view(np.int64)

        def run(group: Group | None, active: Group) -> None:
            differs = register[active] != shadow[active]
            if differs.any():
                lanes = machine.lanes_of(active)[differs]
                off = int(shadow[lanes[0]]) - int(register[lanes[0]])
                machine.findings.report(
                    FindingCode.INDEX_OVERFLOW,
                    position,
                    lanes,
                    lambda: (
                        f"computes an index in 32 bits that wraps: the address is {abs(off)} bytes "
                        f"{'below' if off > 0 else 'above'} where the index means to go; compute it in 64 bits"
                    ),
                )
            bound(group, active)

        return run


def _extends_unsigned(step: DecodedStep, operation: Compute) -> frozenset[int]:
    """Returns the sources that the step extends from unsigned 32 bits."""
    parts = step.opcode.split(".")
    result = operation.results[0][1]
    if parts[0] == "cvt" and SIZES[result] > SIZES[operation.sources[0][1]] and parts[-1].startswith("u"):
        return frozenset({0})
    if "wide" in parts and parts[-1].startswith("u"):
        return frozenset({0, 1})
    return frozenset()
