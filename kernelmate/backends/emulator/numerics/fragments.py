"""Layout of a matrix's elements among a warp's lanes.

Source of every layout: PTX ISA 8.7, "Matrix fragments for mma". A fragment is an array of elements per lane; the tables
give row and column of each, by lane and element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.types import Array

_LANE = np.arange(32)
_GROUP, _WITHIN = _LANE >> 2, _LANE & 3
"""A lane's group of four, and its place in it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows and columns of a fragment's elements: arrays of shape (32, elements); `shape` is the whole matrix's."""

    rows: Array
    columns: Array
    shape: tuple[int, int]

    def gather(self, fragments: Array) -> Array:
        """Matrices of shape (warps, *shape) out of fragments of shape (warps, 32, elements)."""
        matrices = np.empty((len(fragments), *self.shape), fragments.dtype)
        matrices[:, self.rows, self.columns] = fragments
        return matrices

    def scatter(self, matrices: Array) -> Array:
        """Fragments of shape (warps, 32, elements) out of matrices."""
        return np.asarray(matrices[:, self.rows, self.columns])


def left(rows: int, inner: int, packed: int) -> Layout:
    """Fragment of A: `packed` elements of a row are adjacent in a lane (two of 16 bits, four of 8 bits, else one).

    A lane's registers advance by eight rows first, then along the row by four packs.
    """
    return _tiled((rows, inner), packed)


def right(inner: int, columns: int, packed: int) -> Layout:
    """B: the same with rows and columns exchanged."""
    turned = _tiled((columns, inner), packed)
    return Layout(turned.columns, turned.rows, (inner, columns))


def sums(rows: int, columns: int) -> Layout:
    """Fragments of C and D: two adjacent elements of a row, whatever their type; then eight rows down."""
    return _tiled((rows, columns), 2)


def _tiled(shape: tuple[int, int], packed: int) -> Layout:
    height, width = shape
    steps = [(down, along) for along in range(0, width, 4 * packed) for down in range(0, height, 8)]
    places = [(down, along, place) for down, along in steps for place in range(packed)]
    rows = np.stack([_GROUP + down for down, _, _ in places], axis=1)
    columns = np.stack([_WITHIN * packed + place + along for _, along, place in places], axis=1)
    return Layout(rows, columns, shape)
