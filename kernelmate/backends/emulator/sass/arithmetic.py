"""Integer arithmetic of SASS, with carries, and the steps of an integer division."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.sass.code import SassOp
from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.sass.logic import LOW, UPPER, Compute, low, result_registers, store_pair
from kernelmate.backends.emulator.sass.operands import ConstantBank, Read, Values, truth, wide, word
from kernelmate.backends.emulator.types import Array


def _signed(value: Array) -> Array:
    return value.view(np.int32).astype(np.int64).view(np.uint64)


def _predicates(texts: tuple[str, ...]) -> list[str]:
    return [text for text in texts if text.lstrip("!").lstrip("U").startswith("P")]


def sum_of(op: SassOp, frame: ConstantBank, inputs: tuple[str, ...]) -> Callable[[Values], Array]:
    """Returns the sum of inputs and carries as uint64.

    Subtrahends are added as complement plus one, as carries require.
    """
    plain = [text for text in inputs if text not in _predicates(inputs)]
    ones = 0
    reads = []
    for text in plain:
        if text[0] == "-" and not text[1:2].isdigit():
            ones += 1
            text = "~" + text[1:]
        reads.append(word(text, frame))
    carries = [truth(text) for text in _predicates(inputs)]
    if carries and "X" not in op.modifiers:
        raise Unknown(f"a form of {op.opcode} that is not modelled")

    def total(values: Values) -> Array:
        result = np.full((1, 1), ones, np.uint64)
        for read in reads:
            result = result + read(values)
        for carry in carries:
            result = result + carry(values)
        return result

    return total


def add(op: SassOp, frame: ConstantBank) -> Compute:
    """IADD3 and variants: a sum with carries in and out; a subtraction carries if it does not borrow."""
    if "64" in op.modifiers:
        first, second = (wide(text, frame, signed=True) for text in op.inputs)
        return store_pair(op, lambda values: first(values) + second(values))
    total = sum_of(op, frame, op.inputs)
    return result_registers(
        op,
        lambda values: low(total(values)),
        lambda values: total(values) >> UPPER >= 1,
        lambda values: total(values) >> UPPER >= 2,
    )


def multiply_add(op: SassOp, frame: ConstantBank) -> Compute:
    """IMAD: a product plus an addend; WIDE gives all 64 bits, HI the upper half."""
    first, second, third = op.inputs[:3]
    carry = truth(op.inputs[3]) if len(op.inputs) > 3 else None
    if (carry is not None) != ("X" in op.modifiers):
        raise Unknown(f"a form of {op.opcode} that is not modelled")
    signed = "U32" not in op.modifiers
    one, other = word(first, frame), word(second, frame)
    if "WIDE" in op.modifiers or "HI" in op.modifiers:
        added = wide(third, frame)

        def full(values: Values) -> tuple[Array, Array]:
            """Returns the sum, and whether it is beyond 64 bits."""
            factors = (one(values), other(values))
            left, right = (_signed(it) if signed else it.astype(np.uint64) for it in factors)
            plus = added(values)
            total = left * right + plus
            more = total + (np.uint64(0) if carry is None else carry(values))
            return more, (total < plus) | (more < total)

        if "HI" in op.modifiers:
            return result_registers(op, lambda values: low(full(values)[0] >> UPPER))
        if len(op.outputs) == 1:
            return store_pair(op, lambda values: full(values)[0])
        if signed or len(op.results) != 3:
            raise ValueError

        def carrying(values: Values) -> tuple[Array, ...]:
            total, beyond = full(values)
            return low(total), low(total >> UPPER), beyond

        return carrying
    plus = word(third, frame)
    return result_registers(
        op,
        lambda values: low(
            one(values).astype(np.uint64) * other(values)
            + plus(values)
            + (np.uint64(0) if carry is None else carry(values))
        ),
    )


def shift_add(op: SassOp, frame: ConstantBank) -> Compute:
    """LEA: a shifted value plus another; HI uses the upper half of the 64-bit shift."""
    inputs = list(op.inputs)
    carry = truth(inputs.pop()) if "X" in op.modifiers else None
    distance = np.uint64(int(inputs.pop(), 0))
    value = word(inputs[0], frame)
    plus = sum_of(op, frame, (inputs[1],))
    upper: Read | None = None
    if "SX32" in op.modifiers:
        upper = lambda values: (value(values).view(np.int32) >> np.int32(31)).view(np.uint32)  # noqa: E731
    elif "HI" in op.modifiers:
        upper = word(inputs[2], frame)

    def total(values: Values) -> Array:
        low = value(values).astype(np.uint64)
        if upper is None:
            shifted = low << distance & LOW
        else:
            shifted = ((upper(values).astype(np.uint64) << UPPER | low) << distance) >> UPPER
        return shifted + plus(values) + (np.uint64(0) if carry is None else carry(values))

    return result_registers(op, lambda values: low(total(values)), lambda values: total(values) >> UPPER >= 1)


def funnel(op: SassOp, frame: ConstantBank) -> Compute:
    """SHF: shifts 64 bits and keeps one half. 32-bit forms shift one word by at most 32."""
    lower, by, upper_word = (word(text, frame) for text in op.inputs)
    kinds = {"U32", "S32", "U64", "S64"} & set(op.modifiers)
    (kind,) = kinds
    left, upper = "L" in op.modifiers, "HI" in op.modifiers
    if not left and "R" not in op.modifiers:
        raise ValueError
    bits = int(kind[1:])

    def shifted(values: Values) -> Array:
        distance = by(values).astype(np.uint64)
        distance = distance & np.uint64(bits - 1) if "W" in op.modifiers else np.minimum(distance, np.uint64(bits))
        value = upper_word(values).astype(np.uint64) << UPPER | lower(values)
        near = np.minimum(distance, np.uint64(63))
        if left:
            result = np.where(distance > 63, np.uint64(0), value << near)
        elif kind[0] == "S":
            result = (value.view(np.int64) >> near.astype(np.int64)).view(np.uint64)
        else:
            result = np.where(distance > 63, np.uint64(0), value >> near)
        return low(result >> UPPER if upper else result)

    return result_registers(op, shifted)


def add_least(op: SassOp, frame: ConstantBank) -> Compute:
    """VIADDMNMX: the sum of two, and the smaller or the larger of that and a third."""
    total = sum_of(op, frame, op.inputs[:2])
    third, smaller = word(op.inputs[2], frame), truth(op.inputs[3])
    unsigned = "U32" in op.modifiers
    if not {"U32", "S32"} >= set(op.modifiers):
        raise ValueError

    def computed(values: Values) -> Array:
        left, right = low(total(values)), third(values)
        before = left < right if unsigned else left.view(np.int32) < right.view(np.int32)
        return np.where(before == smaller(values), left, right)

    return result_registers(op, computed)


def absolute(op: SassOp, frame: ConstantBank) -> Compute:
    """IABS."""
    return result_registers(op, word(f"|{op.inputs[0]}|", frame))


def to_float(op: SassOp, frame: ConstantBank) -> Compute:
    """I2F as used by integer division: rounded up, for which the following estimate allows."""
    if not {"U32", "S32", "RP"} >= set(op.modifiers):
        raise ValueError
    read, unsigned = word(op.inputs[0], frame), "U32" in op.modifiers

    def computed(values: Values) -> Array:
        value = read(values) if unsigned else read(values).view(np.int32)
        rounded = value.astype(np.float32)
        low = rounded.astype(np.float64) < value
        return np.where(low, np.nextafter(rounded, np.float32(np.inf)), rounded).astype(np.float32).view(np.uint32)

    return result_registers(op, computed)


def reciprocal(op: SassOp, frame: ConstantBank) -> Compute:
    """MUFU.RCP of an I2F result: hardware's last bit may differ, which integer division corrects."""
    if op.modifiers != ("RCP",):
        raise Unknown(f"{op.opcode}, which depends on data or is not modelled")
    read = word(op.inputs[0], frame)
    return result_registers(op, lambda values: (np.float32(1) / read(values).view(np.float32)).view(np.uint32))


def to_integer(op: SassOp, frame: ConstantBank) -> Compute:
    """F2I as used by integer division: truncated, and clamped to 32 bits."""
    if set(op.modifiers) != {"FTZ", "U32", "TRUNC", "NTZ"}:
        raise Unknown(f"{op.opcode}, which depends on data or is not modelled")
    read = word(op.inputs[0], frame)

    def computed(values: Values) -> Array:
        value = np.nan_to_num(read(values).view(np.float32).astype(np.float64), nan=0.0)
        return np.clip(np.trunc(value), 0, 0xFFFFFFFF).astype(np.uint32)

    return result_registers(op, computed)
