"""Tile sizes of convolutions: output channels and positions per block and per thread."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.convolutions import Convolution
from kernelmate.synthesis.window_plan import Windows

BLOCK = 256

SPAN = 4
"""Number of adjacent positions per thread."""


@dataclass(frozen=True, slots=True)
class ConvolutionTile:
    """A block's output channels (`out`) and positions along each spatial axis, and a thread's channels (`side`)."""

    out: int
    positions: tuple[int, ...]
    side: int

    @property
    def threads(self) -> int:
        """Number of threads per block."""
        return self.out // self.side * math.prod(self.positions) // SPAN


def tile_for(plan: Windows, found: Convolution, size: Size, side: int) -> ConvolutionTile:
    """Returns the tile, with `side` channels per thread, that fits the results at a size."""
    counts = {f"__{axis}": int(evaluate(one, size)) for axis, one in enumerate(plan.domain)}
    lengths = [counts[one.variable] for one in found.spatial]
    groups = min(power_above(-(-counts[found.out] // side)), 8 if len(lengths) == 1 else 4)
    left = BLOCK // groups * SPAN
    positions: list[int] = []
    for place, length in enumerate(reversed(lengths)):
        most = 128 if len(lengths) == 1 else 32
        positions.insert(0, max(SPAN if not place else 1, min(power_above(length), left, most)) if place < 2 else 1)
        left = max(1, left // positions[0])
    groups = min(power_above(-(-counts[found.out] // side)), max(1, BLOCK * SPAN // math.prod(positions)))
    return ConvolutionTile(groups * side, tuple(positions), side)


def power_above(count: int) -> int:
    """Returns the smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
