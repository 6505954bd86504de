"""Lanes of one batch: the threads and blocks that run in parallel.

A batch has `blocks` slots of `width` lanes each (the block's threads, rounded up to whole warps). The blocks of a
cluster have neighbouring slots of one batch. A schedule seed permutes the order of clusters, of blocks within a cluster
and, within a block, the slots of its warps. Lanes are processed in slot order wherever
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
        cluster: x, y, z sides of a cluster in blocks, all 1 without clusters.
        cluster_blocks: blocks of a cluster.
        cluster_rank: rank of the block in its cluster, per lane, refilled for each batch.
        cluster_index: x, y, z of the block in its cluster, refilled for each batch.
        cluster_id: x, y, z of the cluster in the grid, refilled for each batch.
        late: lanes of warps that run after the others where order is free; all False for schedule seed 0.
    """

    def __init__(self, shape: LaunchShape, wanted: int, seed: int, *, in_order: bool = False) -> None:
        self.block_shape = shape.block
        self.grid_shape = shape.grid
        self.threads = shape.threads
        self.total_blocks = shape.blocks
        self.width = -(-self.threads // 32) * 32
        x, y, z = (*(shape.cluster or ()), 1, 1, 1)[:3]
        self.cluster = (x, y, z)
        self.cluster_blocks = x * y * z
        clusters = min(self.total_blocks, wanted // self.width) // self.cluster_blocks
        self.blocks = max(1, clusters) * self.cluster_blocks
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
        self.thread_index = [part.astype(np.uint32) for part in _coordinates(flat, shape.block)]
        self.block = np.zeros(self.count, np.int64)
        self.block_index = [np.zeros(self.count, np.uint32) for _ in range(3)]
        self.cluster_rank = np.zeros(self.count, np.uint32)
        self.cluster_index = [np.zeros(self.count, np.uint32) for _ in range(3)]
        self.cluster_id = [np.zeros(self.count, np.uint32) for _ in range(3)]
        self._slot_of_rank = np.zeros((self.blocks // self.cluster_blocks, self.cluster_blocks), np.int64)
        self.late = np.zeros(self.count, bool)

    def _warp_order(self) -> Array:
        warps = np.arange(self.width // 32)
        if self._random is not None:
            warps = self._random.permutation(warps)
        return (warps[:, None] * 32 + np.arange(32)).ravel()

    @cached_property
    def lane_of_thread(self) -> Array:
        """The lane of each thread within its block's slot: the inverse of `thread`."""
        return np.argsort(self.thread[: self.width])

    @property
    def block_warpgroups(self) -> int:
        """Number of warpgroups of a block; the last one may have fewer than four warps."""
        return -(-self.width // WARPGROUP)

    @cached_property
    def warpgroups(self) -> Array:
        """Lanes of each warpgroup, four warps of a block in a row: (warpgroups, 128), -1 beyond the block's last warp."""
        found = np.full((self.blocks * self.block_warpgroups, WARPGROUP), -1, np.int64)
        found[self.warpgroup, self.thread % WARPGROUP] = self.iota
        return found

    @cached_property
    def warpgroup(self) -> Array:
        """The warpgroup of each lane."""
        return np.asarray(self.slot * self.block_warpgroups + self.thread // WARPGROUP)

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
        places = np.arange(first, min(first + self.blocks, self.total_blocks))
        if self.cluster_blocks > 1:
            return self._by_cluster(places)
        return places if self._random is None else self._random.permutation(places)

    def _by_cluster(self, places: Array) -> Array:
        """Returns the block numbers at positions of an order in which each cluster's blocks follow each other by rank."""
        rows = places.reshape(-1, self.cluster_blocks)
        if self._random is not None:
            rows = self._random.permuted(self._random.permutation(rows), axis=1)
        clusters, ranks = np.divmod(rows.ravel(), self.cluster_blocks)
        within, across = _coordinates(ranks, self.cluster), _coordinates(clusters, self.cluster_grid)
        x, y, z = (one * side + part for one, side, part in zip(across, self.cluster, within, strict=True))
        return np.asarray(x + self.grid_shape[0] * (y + self.grid_shape[1] * z))

    @property
    def cluster_grid(self) -> tuple[int, int, int]:
        """Returns x, y, z sides of the grid in clusters."""
        x, y, z = (side // of for side, of in zip(self.grid_shape, self.cluster, strict=True))
        return x, y, z

    def peers(self, lanes: Array, ranks: Array) -> Array:
        """Returns the slots of the blocks of these ranks in the clusters of some lanes."""
        return np.asarray(self._slot_of_rank[self.slot.take(lanes) // self.cluster_blocks, ranks])

    def place_of(self, block: int) -> tuple[int, int, int]:
        """Returns x, y, z of a linear block index."""
        x, y, _ = self.grid_shape
        return block % x, block // x % y, block // (x * y)

    def fill(self, blocks: Array) -> Array:
        """Puts these blocks into the slots; returns the lanes that hold a thread."""
        slots = np.zeros(self.blocks, np.int64)
        slots[: len(blocks)] = blocks
        self._spread(self.block, slots)
        parts = _coordinates(slots, self.grid_shape)
        for index, part, side in zip(self.block_index, parts, self.grid_shape, strict=True):
            if side > 1:
                self._spread(index, part)
        if self.cluster_blocks > 1:
            self._fill_clusters(parts)
        if self._random is not None:
            self.late[:] = np.repeat(self._random.integers(0, 2, self.warps, dtype=np.int8), 32).astype(bool)
        if len(blocks) == self.blocks:
            return self._holding
        return self._holding[self.slot[self._holding] < len(blocks)]

    def _fill_clusters(self, parts: tuple[Array, Array, Array]) -> None:
        """Fills in places within clusters; `parts` are x, y, z of the blocks in the slots."""
        x, y, z = within = [part % side for part, side in zip(parts, self.cluster, strict=True)]
        ranks = x + self.cluster[0] * (y + self.cluster[1] * z)
        self._spread(self.cluster_rank, ranks)
        for axis, side in enumerate(self.cluster):
            self._spread(self.cluster_index[axis], within[axis])
            self._spread(self.cluster_id[axis], parts[axis] // side)
        rows = ranks.reshape(self._slot_of_rank.shape)
        first = np.arange(0, self.blocks, self.cluster_blocks)
        self._slot_of_rank[...] = np.argsort(rows, axis=1) + first[:, None]

    def _spread(self, lanes: Array, slots: Array) -> None:
        """Assigns every lane its slot's value."""
        lanes.reshape(self.blocks, self.width)[...] = slots[:, None]


def _coordinates(numbers: Array, sides: tuple[int, int, int]) -> tuple[Array, Array, Array]:
    """Returns x, y, z of linear indices."""
    x, y, _ = sides
    return numbers % x, numbers // x % y, numbers // (x * y)


def compact(lanes: Array) -> Group:
    """Returns a slice if sorted lane numbers are contiguous."""
    first, last = int(lanes[0]), int(lanes[-1])
    return slice(first, last + 1) if last - first + 1 == len(lanes) else lanes
