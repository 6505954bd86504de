"""The registers of a batch, and operations bound to them.

A register with the same value in every thread of the launch (sizes, pointers, values computed from them) is kept as one
number, and its instructions are not executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.operations import Compute
from kernelmate.backends.emulator.program import Immediate, Operand, Register, Sink, Special, Symbol
from kernelmate.backends.emulator.special_registers import Specials
from kernelmate.backends.emulator.types import (
    DTYPES,
    FLOATS,
    PAIRS,
    SIGNED,
    SIZES,
    UNSIGNED,
    Array,
    is_signed,
    scalar,
    typed_view,
)

Bound = Callable[[Group | None, Group], None]
"""A bound operation, called with the lanes to compute (None if computing all is harmless) and the active lanes."""


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    """An operand that is the same for all lanes: a NumPy scalar of its type, or a (1, 2) array for pairs."""

    value: Any


@dataclass(frozen=True, slots=True)
class LaneOperand:
    """An operand with a value per lane."""

    array: Array
    negated: bool = False


Value = ConstantOperand | LaneOperand


class Registers:
    """Storage for every register of a kernel over `count` lanes.

    Args:
        kinds: type of each register by name.
        symbols: address of each variable and function, in its own state space.
        fill: byte that registers hold before they are written.
    """

    def __init__(
        self, kinds: Mapping[str, str], count: int, specials: Specials, symbols: Mapping[str, int], fill: int = 0
    ) -> None:
        self._fill = fill
        self._kinds = kinds
        self._count = count
        self._specials = specials
        self._symbols = symbols
        self._storage: dict[str, Array] = {}
        self.constants: dict[str, Any] = {}

    def storage(self, name: str) -> Array:
        """Returns the register's array: unsigned integers, or booleans."""
        found = self._storage.get(name)
        if found is None:
            kind = self._kinds[name]
            dtype = np.dtype(np.bool_) if kind == "pred" else UNSIGNED[SIZES[kind]]
            found = self._storage[name] = np.zeros(self._count, dtype)
            if self._fill:
                found[...] = True if kind == "pred" else int.from_bytes(bytes([self._fill]) * dtype.itemsize, "little")
        return found

    def holds(self, name: str) -> bool:
        """Returns True if there is a register of that name."""
        return name in self._kinds

    def special(self, name: str) -> Array | int:
        """Returns the lanes' values of a special register."""
        return self._specials.read(name)

    def width(self, name: str) -> int:
        """Returns the bytes of a register."""
        return SIZES[self._kinds[name]]

    def read(self, operand: Operand, kind: str) -> Value:
        """Returns an operand as a value of a type.

        Raises:
            ValueError: it is not a value.
        """
        if isinstance(operand, Register):
            return self._read_register(operand, kind)
        if isinstance(operand, Immediate):
            return ConstantOperand(_immediate(operand, kind))
        if isinstance(operand, Special):
            value = self._specials.read(operand.name)
            if isinstance(value, int):
                return ConstantOperand(scalar(value, kind))
            return LaneOperand(typed_view(value.astype(UNSIGNED[8]) if SIZES[kind] > value.itemsize else value, kind))
        if isinstance(operand, Symbol):
            return ConstantOperand(scalar(self._symbols[operand.name] + operand.offset, kind))
        raise ValueError(f"operand {operand!r} has no value")

    def _read_register(self, operand: Register, kind: str) -> Value:
        constant = self.constants.get(operand.name)
        if constant is not None:
            value = typed_view(constant, kind)
            if operand.negated:
                value = ~value
            return ConstantOperand(value if kind in PAIRS else value[0])
        return LaneOperand(typed_view(self.storage(operand.name), kind), operand.negated)

    def target(self, operand: Operand, kind: str) -> Array | None:
        """Returns the destination view for results of a type, which widens on assignment if the register is wider.

        The result is None for the operand `_`, which discards a value.
        """
        if isinstance(operand, Sink):
            return None
        if not isinstance(operand, Register):
            raise ValueError(f"operand {operand!r} cannot be written")
        storage = self.storage(operand.name)
        if kind == "pred" or SIZES[kind] == storage.itemsize:
            return typed_view(storage, kind)
        if SIZES[kind] > storage.itemsize:
            raise ValueError(f"a .{kind} result does not fit register {operand.name}")
        if kind in FLOATS:
            raise ValueError(f"a .{kind} result in the wider register {operand.name}")
        return storage.view((SIGNED if is_signed(kind) else UNSIGNED)[storage.itemsize])

    def set_constant(self, operand: Operand, kind: str, value: Any) -> None:
        """Makes a register one number for the whole launch."""
        if isinstance(operand, Sink) or not isinstance(operand, Register):
            return
        storage = np.zeros(1, self._dtype(operand.name))
        view = _target_view(storage, kind)
        view[...] = value
        self.constants[operand.name] = storage

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._kinds[name]
        return np.dtype(np.bool_) if kind == "pred" else UNSIGNED[SIZES[kind]]

    def known(self, operand: Operand) -> bool:
        """True if the operand is the same for the whole launch."""
        if isinstance(operand, Register):
            return operand.name in self.constants
        if isinstance(operand, Special):
            return isinstance(self._specials.read(operand.name), int)
        return isinstance(operand, Immediate | Symbol)


def _target_view(storage: Array, kind: str) -> Array:
    if kind == "pred" or SIZES[kind] == storage.itemsize:
        return typed_view(storage, kind)
    return storage.view((SIGNED if is_signed(kind) else UNSIGNED)[storage.itemsize])


def _immediate(operand: Immediate, kind: str) -> Any:
    if operand.float_bytes and kind != "pred" and SIZES[kind] != operand.float_bytes:
        value = np.array([operand.bits], UNSIGNED[operand.float_bytes]).view(f"f{operand.float_bytes}")[0]
        return DTYPES[kind].type(value)
    if not operand.float_bytes and kind in {"f32", "f64"}:
        return DTYPES[kind].type(operand.bits)
    return scalar(operand.bits, kind)


def immediate_bits(operand: Immediate, kind: str) -> int:
    """Returns the bits of an immediate operand as a value of a type."""
    value = np.asarray(_immediate(operand, kind))
    return int(value.reshape(1).view(f"u{value.itemsize}")[0])


def values_of(value: Value, group: Group | None) -> Any:
    """Returns an operand's values for some lanes: an array, or the uniform number."""
    if isinstance(value, ConstantOperand):
        return value.value
    array = value.array
    if group is not None:
        array = array[group] if type(group) is slice else array.take(group, axis=0)
    return ~array if value.negated else array


def spread(value: Value, group: Group | None, count: int) -> Array:
    """Returns an operand's values as an array of `count` elements."""
    found = values_of(value, group)
    return found if isinstance(value, LaneOperand) else np.full(count, found)


def evaluate(operation: Compute, registers: Registers) -> None:
    """Evaluates an operation whose sources are uniform for the launch."""
    sources = []
    for operand, kind in operation.sources:
        value = registers.read(operand, kind)
        assert isinstance(value, ConstantOperand)
        sources.append(np.atleast_1d(np.asarray(value.value)))
    results = operation.function(*sources)
    for (operand, kind), result in zip(
        operation.results, results if isinstance(results, tuple) else (results,), strict=True
    ):
        registers.set_constant(operand, kind, result)


def bind_compute(operation: Compute, registers: Registers) -> Bound:
    """Binds the operation as a function of the lanes to compute."""
    values = [registers.read(operand, kind) for operand, kind in operation.sources]
    if len(operation.results) == 1:
        operand, kind = operation.results[0]
        target = registers.target(operand, kind)
        if target is None:
            return lambda group, active: None
        simple = not any(isinstance(value, LaneOperand) and value.negated for value in values)
        if operation.ufunc is not None and simple and target.dtype == DTYPES[kind]:
            return _bind_ufunc(operation.ufunc, values, target)
        return _bind_single(operation.function, values, target)
    targets = [registers.target(operand, kind) for operand, kind in operation.results]
    return _bind_several(operation.function, values, targets)


def _raw(value: Value) -> Any:
    return value.value if isinstance(value, ConstantOperand) else value.array


def _bind_ufunc(ufunc: np.ufunc, values: list[Value], target: Array) -> Bound:
    raw = tuple(_raw(value) for value in values)
    if all(isinstance(value, ConstantOperand) for value in values):
        return _bind_single(ufunc, values, target)

    def run(group: Group | None, active: Group) -> None:
        del active
        if group is None:
            ufunc(*raw, out=target)
        elif type(group) is slice:
            ufunc(*[item[group] if isinstance(item, np.ndarray) else item for item in raw], out=target[group])
        else:
            target[group] = ufunc(*[item.take(group) if isinstance(item, np.ndarray) else item for item in raw])

    return run


def _as_array(value: Value) -> Value:
    """Wraps constants as arrays of one element, so that custom functions need not handle scalars."""
    return ConstantOperand(np.atleast_1d(np.asarray(value.value))) if isinstance(value, ConstantOperand) else value


def _bind_single(function: Callable[..., Any], values: list[Value], target: Array) -> Bound:
    arrays = [_as_array(value) for value in values]

    def run(group: Group | None, active: Group) -> None:
        del active
        result = function(*[values_of(value, group) for value in arrays])
        if group is None:
            target[...] = result
        else:
            target[group] = result

    return run


def _bind_several(function: Callable[..., Any], values: list[Value], targets: list[Array | None]) -> Bound:
    arrays = [_as_array(value) for value in values]

    def run(group: Group | None, active: Group) -> None:
        del active
        results = function(*[values_of(value, group) for value in arrays])
        for target, result in zip(targets, results, strict=True):
            if target is not None:
                target[... if group is None else group] = result

    return run
