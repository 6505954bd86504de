"""The approximate functions of the special-function unit, computed in float64 and rounded.

The hardware's results differ from these in the last bits within the bounds that the PTX ISA states.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.instructions.integer import plain
from kernelmate.backends.emulator.instructions.registry import decodes, require
from kernelmate.backends.emulator.numerics.rounding import flush
from kernelmate.backends.emulator.operations import Operation
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import DTYPES, Array

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
}


_TYPES: dict[str, frozenset[str]] = {
    "ex2": frozenset({"f32", "f16", "bf16", "f16x2", "bf16x2"}),
    "tanh": frozenset({"f32", "f16", "bf16", "f16x2", "bf16x2"}),
    "rsqrt": frozenset({"f32", "f64"}),
    **dict.fromkeys(("lg2", "sin", "cos"), frozenset({"f32"})),
}


def upper_half(exact: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Wraps approximate f64 forms, which read and write only the upper 32 bits, and flush subnormals (PTX ISA, rcp, rsqrt)."""

    def cut(value: Array) -> Array:
        bits = np.asarray(value).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
        return bits.view(np.float64)

    return lambda a: flush(cut(exact(flush(cut(a)))))


@decodes("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
def decode_special(instruction: Instruction) -> Operation:
    """One of the approximate functions, for f32, f64 (rsqrt) and the narrow types (ex2, tanh)."""
    kind, name = instruction.kind, instruction.name
    require(instruction, _TYPES[name] | {"approx", "ftz"})
    dtype, exact, ftz = DTYPES[kind], _FUNCTIONS[name], instruction.has("ftz")

    if kind == "f64":
        return plain(instruction, kind, upper_half(exact))

    def function(a: Array) -> Array:
        if ftz:
            a = flush(a)
        result = exact(a.astype(np.float64)).astype(np.float32).astype(dtype)
        return flush(result) if ftz else result

    return plain(instruction, kind, function)
