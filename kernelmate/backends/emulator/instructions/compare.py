"""Comparisons and selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.rounding import flush
from kernelmate.backends.emulator.operations import Compute, Operation, Typed
from kernelmate.backends.emulator.program import Instruction, Operand, RegisterPair
from kernelmate.backends.emulator.types import DTYPES, FLOATS, PAIRS, SIZES, Array

_ORDERED: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BOOLEAN: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(name: str, kind: str) -> tuple[Callable[[Array, Array], Any], np.ufunc | None]:
    """Returns the function of a comparison operator for a type, and the ufunc if it is one.

    Raises:
        Unsupported: there is no such operator.
    """
    if name in _ORDERED:
        ufunc = _ORDERED[name]
        if name == "ne" and kind in FLOATS:
            # Without a u, a comparison with NaN is false, for "not equal" too.
            return lambda a, b: np.not_equal(a, b) & ~(np.isnan(a) | np.isnan(b)), None
        return ufunc, ufunc
    if kind in FLOATS:
        if name == "num":
            return lambda a, b: ~(np.isnan(a) | np.isnan(b)), None
        if name == "nan":
            return lambda a, b: np.isnan(a) | np.isnan(b), None
        if name.endswith("u") and name[:-1] in _ORDERED:
            ordered = _ORDERED[name[:-1]]
            return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b), None
    raise Unsupported(f"comparison .{name}")


def _compared(instruction: Instruction, kind: str) -> tuple[Callable[[Array, Array], Any], np.ufunc | None]:
    function, ufunc = comparison(instruction.parts[1], kind)
    if instruction.has("ftz"):
        return lambda a, b: function(flush(a), flush(b)), None
    return function, ufunc


@decodes("setp")
def decode_setp(instruction: Instruction) -> Operation:
    """Compare, combine with another predicate, and set one or two predicates."""
    kind = instruction.kind
    if kind not in SIZES:
        raise Unsupported(f"type .{kind}")
    destination, left, right, *third = instruction.operands
    compare, ufunc = _compared(instruction, kind)
    combine = next((_BOOLEAN[part] for part in instruction.parts[2:-1] if part in _BOOLEAN), None)
    sources: tuple[Typed, ...] = ((left, kind), (right, kind))
    if kind in PAIRS:
        return _setp_pair(destination, compare, combine, sources, third)
    if not third and not isinstance(destination, RegisterPair):
        return Compute(((destination, "pred"),), sources, compare, ufunc)

    def function(a: Array, b: Array, *other: Array) -> Any:
        true = compare(a, b)
        false = ~np.asarray(true)
        if combine is not None:
            true, false = combine(true, other[0]), combine(false, other[0])
        return (true, false) if isinstance(destination, RegisterPair) else true

    results: tuple[Typed, ...] = ((destination, "pred"),)
    if isinstance(destination, RegisterPair):
        results = ((destination.first, "pred"), (destination.second, "pred"))
    return Compute(results, sources + tuple((operand, "pred") for operand in third), function)


def _setp_pair(
    destination: Operand,
    compare: Callable[[Array, Array], Any],
    combine: np.ufunc | None,
    sources: tuple[Typed, ...],
    third: list[Operand],
) -> Compute:
    """`setp` on a packed pair: the first predicate belongs to the low half, the second to the high half."""
    if not isinstance(destination, RegisterPair):
        raise Unsupported("setp of a pair with one predicate")

    def function(a: Array, b: Array, *other: Array) -> Any:
        both = np.asarray(compare(a, b))
        low, high = both[:, 0], both[:, 1]
        if combine is not None:
            low, high = combine(low, other[0]), combine(high, other[0])
        return low, high

    results = ((destination.first, "pred"), (destination.second, "pred"))
    return Compute(results, sources + tuple((operand, "pred") for operand in third), function)


@decodes("set")
def decode_set(instruction: Instruction) -> Operation:
    """Compare, and set all ones or 1.0 if true, else zero."""
    result, kind = instruction.parts[-2:]
    if kind not in SIZES or result not in SIZES:
        raise Unsupported(instruction.opcode)
    destination, left, right, *third = instruction.operands
    compare, _ = _compared(instruction, kind)
    combine = next((_BOOLEAN[part] for part in instruction.parts[2:-2] if part in _BOOLEAN), None)
    dtype = DTYPES[result]
    pair_of_masks = kind in PAIRS and result not in PAIRS

    def function(a: Array, b: Array, *other: Array) -> Array:
        holds = np.asarray(compare(a, b))
        if combine is not None:
            holds = combine(holds, other[0] if holds.ndim == 1 else other[0][:, None])
        if pair_of_masks:
            halves = np.where(holds, np.uint32(0xFFFF), np.uint32(0))
            return np.asarray(halves[:, 0] | (halves[:, 1] << np.uint32(16)))
        if result in FLOATS:
            return holds.astype(dtype)
        return np.asarray(np.where(holds, dtype.type(-1) if dtype.kind == "i" else ~dtype.type(0), dtype.type(0)))

    sources: tuple[Typed, ...] = ((left, kind), (right, kind), *((operand, "pred") for operand in third))
    return Compute(((destination, result),), sources, function)


@decodes("selp")
def decode_select(instruction: Instruction) -> Operation:
    """Selects the first operand if the predicate is true, else the second."""
    bits = f"b{8 * SIZES[instruction.kind]}" if instruction.kind in SIZES else "b32"
    destination, first, second, predicate = instruction.operands
    return Compute(
        ((destination, bits),),
        ((first, bits), (second, bits), (predicate, "pred")),
        lambda a, b, p: np.where(p, a, b),
    )


@decodes("slct")
def decode_slct(instruction: Instruction) -> Operation:
    """Selects the first operand if the third is not negative, else the second."""
    kind, test = instruction.parts[-2:]
    bits = f"b{8 * SIZES[kind]}"
    destination, first, second, third = instruction.operands
    ftz = instruction.has("ftz")
    return Compute(
        ((destination, bits),),
        ((first, bits), (second, bits), (third, test)),
        lambda a, b, c: np.where((flush(c) if ftz else c) >= 0, a, b),
    )
