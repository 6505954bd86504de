"""Video instructions on two halves or four bytes of a register, which NVRTC generates for `__vabsdiffu4` and similar intrinsics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import Compute, Operation
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import Array

_FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_WRAPPING = frozenset({"vadd", "vsub"})


@decodes(*(f"{name}{count}" for name in _FUNCTIONS for count in (2, 4)))
def decode_video(instruction: Instruction) -> Operation:
    """Decodes `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax` on two halves or four bytes, each separate or (`.add`) summed."""
    name, count = instruction.name[:-1], int(instruction.name[-1])
    kinds, extra = instruction.parts[1:4], instruction.parts[4:]
    known = {(), ("sat",)} if name in _WRAPPING else {(), ("sat",), ("add",)}
    if len(kinds) < 3 or not {"u32", "s32"}.issuperset(kinds) or extra not in known:
        raise Unsupported(instruction.opcode)
    bits = 32 // count
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kinds[0] == "s32" else (0, (1 << bits) - 1)
    function, summed = _FUNCTIONS[name], "add" in extra

    def part(value: Array, index: int, kind: str) -> Array:
        moved = value.astype(np.int64) >> (index * bits)
        return (moved << (64 - bits)) >> (64 - bits) if kind == "s32" else moved & ((1 << bits) - 1)

    def compute(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        total: Array = np.zeros(shape, np.int64) + (c.astype(np.int64) if summed else 0)
        for index in range(count):
            lane = function(part(a, index, kinds[1]), part(b, index, kinds[2]))
            if "sat" in extra:
                lane = np.clip(lane, low, high)
            total = total + lane if summed else total | ((lane & ((1 << bits) - 1)) << (index * bits))
        return total.astype(np.uint32)

    first, a, b, c = instruction.operands
    return Compute(((first, "b32"),), ((a, "b32"), (b, "b32"), (c, "b32")), compute)
