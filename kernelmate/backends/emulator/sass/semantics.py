"""Semantics of SASS instructions that branches depend on: integers, predicates, and parts of addresses.

Anything that depends on an instruction missing here is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.sass.arithmetic import (
    absolute,
    add,
    add_least,
    funnel,
    multiply_add,
    reciprocal,
    shift_add,
    to_float,
    to_integer,
)
from kernelmate.backends.emulator.sass.choices import (
    Compute,
    compare,
    least,
    load_constant,
    logic,
    move,
    pack_predicates,
    packed_constant,
    permute,
    predicate_logic,
    select,
    special,
)
from kernelmate.backends.emulator.sass.code import SassOp
from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.sass.operands import ConstantBank, Values, truth
from kernelmate.backends.emulator.types import Array

Step = Callable[[Values, Array | None], None]
Maker = Callable[[SassOp, ConstantBank], Compute]

_MAKERS: dict[str, Maker] = {
    "IADD3": add, "IADD": add, "VIADD": add, "IMAD": multiply_add, "LEA": shift_add, "LOP3": logic,
    "PLOP3": predicate_logic, "SHF": funnel, "ISETP": compare, "SEL": select, "IMNMX": least, "VIMNMX": least,
    "MOV": move, "R2UR": move, "LDC": load_constant, "LDCU": load_constant, "S2R": special, "S2UR": special,
    "CS2R": special, "IABS": absolute, "PRMT": permute, "HFMA2": packed_constant, "I2F": to_float,
    "MUFU": reciprocal, "F2I": to_integer, "VIADDMNMX": add_least, "P2R": pack_predicates,
}  # fmt: skip
"""Functions by opcode; uniform opcodes (`UIADD3`) without their U."""


def is_modelled(op: SassOp) -> bool:
    """Returns True if some form of this opcode is supported."""
    return op.name in _MAKERS or op.name.removeprefix("U") in _MAKERS


def step(op: SassOp, frame: ConstantBank) -> Step:
    """Return an operation as a function of registers, for some lanes or (None) for all.

    Raises:
        Unknown: its semantics are unknown.
    """
    maker = _MAKERS.get(op.name) or _MAKERS.get(op.name.removeprefix("U"))
    if maker is None:
        raise Unknown(f"{op.opcode}, which depends on data or is not modelled")
    try:
        compute = maker(op, frame)
    except (IndexError, ValueError, KeyError):
        raise Unknown(f"a form of {op.opcode} that is not modelled") from None
    guard = truth(op.guard) if op.partial and op.guard is not None else None
    names = op.results

    def done(values: Values, lanes: Array | None) -> None:
        where = lanes if guard is None else guard(values) if lanes is None else guard(values) & lanes
        for name, result in zip(names, compute(values), strict=True):
            if where is None:
                values[name] = result
            else:
                values[name] = np.where(where, result, values.get(name, result.dtype.type(0)))

    return done
