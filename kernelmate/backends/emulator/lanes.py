"""Lanes of one batch: the threads and blocks that run in parallel.

A batch has `blocks` slots of `width` lanes each (the block's threads, rounded up to whole warps). A schedule seed
permutes the order of blocks and, within a block, the slots of its warps. Lanes are processed in slot order wherever
order is observable, so the seed permutes the order that a GPU leaves open.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kernelmate.backends.emulator.types import Array
from kernelmate.records import LaunchShape

Group = slice | Array
"""Lanes that run together: a slice, or sorted lane numbers."""


WARPGROUP = 128
"""Threads of a warpgroup."""


class Lanes:
    """Geometry of the batches of one launch.

    Args:
        wanted: desired lanes per batch.
        seed: the schedule seed.
        in_order: keep the order of batches, because blocks may wait for preceding ones, as look-back scans do.

    Attributes:
        count: lanes of a batch.
        warps: the warps of a batch.
        thread: linear thread index in its block, per lane.
        lane: its lane index in its warp.
        slot: the index of its block within the batch, per lane.
        thread_index: x, y, z of the thread.
        block_index: x, y, z of the block, refilled for each batch.
        block: linear block index, refilled for each batch.
        late: lanes of warps that run after the others where order is free; all False for schedule seed 0.
    """

    def __init__(self, shape: LaunchShape, wanted: int, seed: int, *, in_order: bool = False) -> None:
        self.block_shape = shape.block
        self.grid_shape = shape.grid
        self.threads = shape.threads
        self.total_blocks = shape.blocks
        self.width = -(-self.threads // 32) * 32
        self.blocks = max(1, min(self.total_blocks, wanted // self.width))
        self.count = self.blocks * self.width
        self.warps = self.count // 32
        self._in_order = in_order
        self._random = np.random.default_rng(seed) if seed else None
        within = self._warp_order()
        self.thread = np.tile(within, self.blocks).astype(np.int32)
        self.lane = (self.thread & 31).astype(np.uint32)
        self.iota = np.arange(self.count, dtype=np.int64)
        self.slot = np.repeat(np.arange(self.blocks), self.width)
        self.real = self.thread < self.threads
        self._holding = np.flatnonzero(self.real)
        flat = np.minimum(self.thread, self.threads - 1)
        x, y, _ = shape.block
        self.thread_index = [part.astype(np.uint32) for part in (flat % x, flat // x % y, flat // (x * y))]
        self.block = np.zeros(self.count, np.int64)
        self.block_index = [np.zeros(self.count, np.uint32) for _ in range(3)]
        self.late = np.zeros(self.count, bool)

    def _warp_order(self) -> Array:
        warps = np.arange(self.width // 32)
        if self._random is not None:
            warps = self._random.permutation(warps)
        return (warps[:, None] * 32 + np.arange(32)).ravel()

    @cached_property
    def warpgroups(self) -> Array:
        """Lanes of each warpgroup, four warps of a block in a row: (warpgroups, 128), -1 beyond the block's last warp."""
        each = -(-self.width // WARPGROUP)
        found = np.full((self.blocks * each, WARPGROUP), -1, np.int64)
        found[self.warpgroup, self.thread % WARPGROUP] = self.iota
        return found

    @cached_property
    def warpgroup(self) -> Array:
        """The warpgroup of each lane."""
        return np.asarray(self.slot * -(-self.width // WARPGROUP) + self.thread // WARPGROUP)

    def batches(self) -> int:
        """Number of batches of the grid."""
        return -(-self.total_blocks // self.blocks)

    def order(self, number: int) -> Array:
        """Returns the linear block indices of a batch, in slot order.

        A seed permutes the batches and the blocks in each.
        """
        if self._random is not None and not self._in_order:
            number = self.batches() - 1 - number
        first = number * self.blocks
        blocks = np.arange(first, min(first + self.blocks, self.total_blocks))
        return blocks if self._random is None else self._random.permutation(blocks)

    def place_of(self, block: int) -> tuple[int, int, int]:
        """Returns x, y, z of a linear block index."""
        x, y, _ = self.grid_shape
        return block % x, block // x % y, block // (x * y)

    def fill(self, blocks: Array) -> Array:
        """Puts these blocks into the slots; returns the lanes that hold a thread."""
        slots = np.zeros(self.blocks, np.int64)
        slots[: len(blocks)] = blocks
        self._spread(self.block, slots)
        x, y, _ = self.grid_shape
        parts = (slots % x, slots // x % y, slots // (x * y))
        for index, part, side in zip(self.block_index, parts, self.grid_shape, strict=True):
            if side > 1:
                self._spread(index, part)
        if self._random is not None:
            self.late[:] = np.repeat(self._random.integers(0, 2, self.warps, dtype=np.int8), 32).astype(bool)
        if len(blocks) == self.blocks:
            return self._holding
        return self._holding[self.slot[self._holding] < len(blocks)]

    def _spread(self, lanes: Array, slots: Array) -> None:
        """Assigns every lane its slot's value."""
        lanes.reshape(self.blocks, self.width)[...] = slots[:, None]


def compact(lanes: Array) -> Group:
    """Returns a slice if sorted lane numbers are contiguous."""
    first, last = int(lanes[0]), int(lanes[-1])
    return slice(first, last + 1) if last - first + 1 == len(lanes) else lanes
