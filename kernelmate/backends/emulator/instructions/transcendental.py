"""The approximate functions of the special-function unit, computed in float64 and rounded.

The hardware's results differ from these in the last bits within the bounds that the PTX ISA states.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.instructions.integer import plain
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.rounding import flush
from kernelmate.backends.emulator.operations import Operation
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import DTYPES, FLOATS, Array

_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
}


@decodes("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
def decode_special(instruction: Instruction) -> Operation:
    """One of the approximate functions, for f32, f64 (rsqrt) and the narrow types (ex2, tanh)."""
    kind = instruction.kind
    if kind not in FLOATS:
        raise Unsupported(f"type .{kind}")
    dtype, exact, ftz = DTYPES[kind], _FUNCTIONS[instruction.name], instruction.has("ftz")

    def function(a: Array) -> Array:
        if ftz:
            a = flush(a)
        result = exact(a.astype(np.float64)).astype(np.float32 if dtype != np.float64 else np.float64).astype(dtype)
        return flush(result) if ftz else result

    return plain(instruction, kind, function)
