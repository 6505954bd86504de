"""Logic, comparisons, selections and moves of SASS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.sass.code import SassOp
from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.sass.operands import (
    SPECIALS,
    ConstantBank,
    Read,
    Values,
    halves,
    number,
    truth,
    wide,
    word,
)
from kernelmate.backends.emulator.types import Array

Compute = Callable[[Values], tuple[Array, ...]]
LOW = np.uint64(0xFFFFFFFF)
UPPER = np.uint64(32)
"""Shift of the upper word of 64 bits."""


def low(total: Array) -> Array:
    """Returns the lower word of 64 bits."""
    return (total & LOW).astype(np.uint32)


def result_registers(op: SassOp, *results: Read | None) -> Compute:
    """Returns the result operands that are registers."""
    kept = [read for text, read in zip(op.outputs, results, strict=False) if text not in {"PT", "UPT", "RZ", "URZ"}]
    if len(kept) != len(op.results) or None in kept:
        raise Unknown(f"a form of {op.opcode} that is not modelled")
    reads = [read for read in kept if read is not None]
    return lambda values: tuple(read(values) for read in reads)


def store_pair(op: SassOp, total: Callable[[Values], Array]) -> Compute:
    """Stores a result of 64 bits in a pair of registers."""
    if len(op.results) != 2 or len(op.outputs) != 1:
        raise Unknown(f"a form of {op.opcode} that is not modelled")

    def halves_of(values: Values) -> tuple[Array, ...]:
        result = total(values)
        return low(result), low(result >> UPPER)

    return halves_of


_COMPARISONS: dict[str, Any] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip
_STRICT = {"LE": "LT", "GE": "GT"}
_JOINED: dict[str, Any] = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}


def logic(op: SassOp, frame: ConstantBank) -> Compute:
    """LOP3: any function of three bits, by a table of eight."""
    first, second, third = (word(text, frame) for text in op.inputs[:3])
    table = int(op.inputs[3], 0)
    if op.inputs[4:] not in {("!PT",), ("!UPT",), ()} or not {"LUT"} >= set(op.modifiers):
        raise Unknown(f"a form of {op.opcode} that is not modelled")

    def computed(values: Values) -> Array:
        return _by_table(table, first(values), second(values), third(values))

    if len(op.outputs) == 2:
        return result_registers(op, lambda values: computed(values) != 0, computed)
    return result_registers(op, computed)


def _by_table(table: int, first: Array, second: Array, third: Array) -> Array:
    result = np.zeros_like(first & second & third)
    for index in range(8):
        if table >> index & 1:
            result = result | (
                (first if index & 4 else ~first) & (second if index & 2 else ~second) & (third if index & 1 else ~third)
            )
    return result


def predicate_logic(op: SassOp, frame: ConstantBank) -> Compute:
    """PLOP3: any two functions of three predicates."""
    del frame
    first, second, third = (truth(text) for text in op.inputs[:3])
    tables = [int(text, 0) for text in op.inputs[3:5]]
    reads = [
        lambda values, table=table: _by_table(table, first(values), second(values), third(values)) for table in tables
    ]
    return result_registers(op, *reads)


def compare(op: SassOp, frame: ConstantBank) -> Compute:
    """ISETP: compares two words or two 64-bit values.

    With EX the upper halves of values whose lower halves were compared before.
    """
    long = {"U64", "S64"} & set(op.modifiers)
    first, second = ((wide(text, frame, signed=True) if long else word(text, frame)) for text in op.inputs[:2])
    joined = truth(op.inputs[2])
    how = op.modifiers[0]
    unsigned = {"U32", "U64"} & set(op.modifiers)
    as_signed = np.int64 if long else np.int32
    join = next(_JOINED[name] for name in op.modifiers if name in _JOINED)
    if not {"U32", "U64", "S64", "EX", *_JOINED, *_COMPARISONS} >= set(op.modifiers):
        raise ValueError
    lower = truth(op.inputs[3]) if "EX" in op.modifiers else None

    def holds(values: Values) -> Array:
        left, right = first(values), second(values)
        if not unsigned:
            left, right = left.view(as_signed), right.view(as_signed)
        if lower is None:
            result: Array = _COMPARISONS[how](left, right)
        elif how == "NE":
            result = (left != right) | lower(values)
        else:
            strict = np.zeros((1, 1), bool) if how == "EQ" else _COMPARISONS[_STRICT.get(how, how)](left, right)
            result = strict | (left == right) & lower(values)
        return result

    return result_registers(
        op,
        lambda values: join(holds(values), joined(values)),
        lambda values: join(~holds(values), joined(values)),
    )


def select(op: SassOp, frame: ConstantBank) -> Compute:
    """SEL: the first operand if the predicate holds, else the second."""
    first, second, chosen = word(op.inputs[0], frame), word(op.inputs[1], frame), truth(op.inputs[2])
    return result_registers(op, lambda values: np.where(chosen(values), first(values), second(values)))


def minimum_or_maximum(op: SassOp, frame: ConstantBank) -> Compute:
    """IMNMX: the smaller operand if the predicate is true, else the larger."""
    first, second, smaller = word(op.inputs[0], frame), word(op.inputs[1], frame), truth(op.inputs[2])
    unsigned = "U32" in op.modifiers
    if not {"U32", "S32"} >= set(op.modifiers):
        raise ValueError

    def computed(values: Values) -> Array:
        left, right = first(values), second(values)
        before = left < right if unsigned else left.view(np.int32) < right.view(np.int32)
        return np.where(before == smaller(values), left, right)

    return result_registers(op, computed)


def pack_predicates(op: SassOp, frame: ConstantBank) -> Compute:
    """P2R: packs predicates as bits, inserted into a word under a mask."""
    mask = int(op.inputs[2], 0)
    if op.modifiers or op.inputs[0] != "PR":
        raise ValueError
    under = word(op.inputs[1], frame)
    bits = [(index, truth(f"P{index}")) for index in range(7) if mask >> index & 1]

    def computed(values: Values) -> Array:
        result = under(values) & np.uint32(~mask & 0xFFFFFFFF)
        for index, predicate in bits:
            result = result | predicate(values).astype(np.uint32) << np.uint32(index)
        return result

    return result_registers(op, computed)


def move(op: SassOp, frame: ConstantBank) -> Compute:
    """MOV, and R2UR, whose lanes the compiler knows to be uniform."""
    if "64" in op.modifiers:
        return store_pair(op, wide(op.inputs[0], frame))
    if not {"U32"} >= set(op.modifiers):
        raise ValueError
    return result_registers(op, word(op.inputs[0], frame))


def load_constant(op: SassOp, frame: ConstantBank) -> Compute:
    """LDC: words of constant memory at an immediate address."""
    if not {"32", "64", "128"} >= set(op.modifiers):
        raise ValueError
    address = op.inputs[0].replace(" ", "").replace("[RZ]", "[0x0]").replace("[URZ]", "[0x0]")
    bank, offset = (int(part.rstrip("]"), 16) for part in address.removeprefix("c[").split("["))
    reads = [number(frame.constant(bank, offset + 4 * index)) for index in range(len(op.results))]
    return lambda values: tuple(reads)


def special(op: SassOp, frame: ConstantBank) -> Compute:
    """S2R: a thread's coordinates in the launch."""
    del frame
    name = op.inputs[0]
    if name == "SRZ":
        return lambda values: tuple(number(0) for _ in op.results)
    if name not in SPECIALS or len(op.results) != 1:
        raise Unknown(f"{op.opcode} of {name}")
    return lambda values: (values[name],)


def permute(op: SassOp, frame: ConstantBank) -> Compute:
    """PRMT: each byte one of eight, or its sign."""
    if op.modifiers:
        raise ValueError
    first, chosen, second = (word(text, frame) for text in op.inputs)

    def computed(values: Values) -> Array:
        pool = second(values).astype(np.uint64) << UPPER | first(values)
        picks = chosen(values).astype(np.uint64)
        result = np.zeros((1, 1), np.uint64)
        for index in range(4):
            pick = picks >> np.uint64(4 * index) & np.uint64(15)
            byte = pool >> (pick & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            signs = np.where(byte > 127, np.uint64(255), np.uint64(0))
            result = result | np.where(pick > 7, signs, byte) << np.uint64(8 * index)
        return low(result)

    return result_registers(op, computed)


def packed_constant(op: SassOp, frame: ConstantBank) -> Compute:
    """HFMA2 on zeros: loads a constant, which the compiler does with another pipe."""
    del frame
    if tuple(text.lstrip("-") for text in op.inputs[:2]) != ("RZ", "RZ") or len(op.inputs) != 4:
        raise Unknown(f"{op.opcode}, which depends on data or is not modelled")
    return result_registers(op, halves(*op.inputs[2:]))
