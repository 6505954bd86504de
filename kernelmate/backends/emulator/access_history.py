"""Access history of one piece of memory: the last accesses of each granule of bytes."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.types import Array

_PAGE_SHIFT = 12
"""Cells per page; if memory is too large to shadow completely, some pages are left out."""
SHADOW_BYTES = 36
"""Bytes of shadow per cell."""


class AccessHistory:
    """The last write and the last two reads, by different threads, of every granule.

    A granule is the smallest piece that has been accessed so far; a smaller access splits the cells. Accesses are
    packed numbers of `happens_before`; zero stands for none.

    Args:
        size: bytes of the memory.
        granule: bytes of the first access.
        most_bytes: maximum size of the shadow; if it needs more, it covers every n-th page of the memory.

    Attributes:
        writes, write_sites: packed access and number of the instruction.
        reads, other_reads, read_sites, other_read_sites: the same; None until the first read.
        last_write, last_read: highest stamps among them.
        groups: of asynchronous copies, the group that each was in; None if there were none.
        every: n, if the shadow covers every n-th page; 1 if it covers all.
    """

    def __init__(self, size: int, granule: int, most_bytes: int | None = None) -> None:
        self.granule = granule
        self._size = size
        self.shift = granule.bit_length() - 1
        cells = (size >> self.shift) + 1
        self.every = 1
        if most_bytes is not None:
            self.every = max(1, -(-cells * SHADOW_BYTES // max(most_bytes, 1)))
            cells = (((cells >> _PAGE_SHIFT) // self.every) + 1) << _PAGE_SHIFT if self.every > 1 else cells
        self._cells = cells
        self.writes = np.zeros(cells, np.int64)
        self.write_sites = np.zeros(cells, np.int32)
        self.reads: Array | None = None
        self.other_reads = self.read_sites = self.other_read_sites = self.writes[:0]
        self.last_write = 0
        self.last_read = 0
        self.groups: Array | None = None

    @property
    def covers_all(self) -> bool:
        """Returns True if no page is left out."""
        return self.every == 1 or self._size >> self.shift < 1 << _PAGE_SHIFT

    def refine(self, size: int) -> None:
        """Splits the cells to at most `size` bytes each; with pages left out, starts again."""
        factor = self.granule // size
        if self.every > 1:
            fresh = AccessHistory(self._size, size, self._cells * SHADOW_BYTES)
            self.every, self._cells, self.writes, self.write_sites = (
                fresh.every, fresh._cells, fresh.writes, fresh.write_sites,
            )  # fmt: skip
            self.reads, self.last_write, self.last_read = None, 0, 0
        else:
            self._cells *= factor
            self.writes, self.write_sites = np.repeat(self.writes, factor), np.repeat(self.write_sites, factor)
            if self.groups is not None:
                self.groups = np.repeat(self.groups, factor)
            if self.reads is not None:
                self.reads, self.other_reads = np.repeat(self.reads, factor), np.repeat(self.other_reads, factor)
                self.read_sites = np.repeat(self.read_sites, factor)
                self.other_read_sites = np.repeat(self.other_read_sites, factor)
        self.granule, self.shift = size, size.bit_length() - 1

    def cells(self, offsets: Array, size: int) -> tuple[Array, Array | None]:
        """Returns the cells of accesses of `size` bytes at these offsets, and the access of each cell (None: one each)."""
        if size < self.granule:
            self.refine(size)
        first = (offsets >> offsets.dtype.type(self.shift)).astype(np.int64)
        owners: Array | None = None
        if size > self.granule:
            pieces = size >> self.shift
            owners = np.repeat(np.arange(len(first)), pieces)
            first = (first[:, None] + np.arange(pieces)).reshape(-1)
        if self.every > 1:
            page = first >> _PAGE_SHIFT
            covered = np.flatnonzero(page % self.every == 0)
            owners = covered if owners is None else owners[covered]
            first = (page[covered] // self.every << _PAGE_SHIFT) | (first[covered] & ((1 << _PAGE_SHIFT) - 1))
        return first, owners

    def offsets_of(self, cells: Array) -> Array:
        """Returns the byte offsets of cells."""
        if self.every > 1:
            low = cells & ((1 << _PAGE_SHIFT) - 1)
            cells = ((cells >> _PAGE_SHIFT) * self.every << _PAGE_SHIFT) | low
        return cells << self.shift

    def note_write(self, cells: Array, accesses: Array, site: int, stamp: int, groups: Array | None = None) -> None:
        """Records writes; of several to one cell the last counts."""
        if groups is not None:
            if self.groups is None:
                self.groups = np.zeros(self._cells, np.int32)
            self.groups[cells] = groups
        self.writes[cells] = accesses
        self.write_sites[cells] = site
        self.last_write = stamp

    def note_read(self, cells: Array, accesses: Array, site: int, stamp: int, settled: int = 0) -> None:
        """Records reads, and for each cell the preceding one if that was by another thread, at `settled` or later."""
        if self.reads is None:
            self.reads, self.other_reads = np.zeros(self._cells, np.int64), np.zeros(self._cells, np.int64)
            self.read_sites, self.other_read_sites = np.zeros(self._cells, np.int32), np.zeros(self._cells, np.int32)
        other = cells[:0]
        if self.last_read >= settled:
            before = self.reads.take(cells)
            other = np.flatnonzero((before ^ accesses).astype(np.int32))
        if other.size:
            theirs = other if other.size < len(cells) else slice(None)
            where = cells[theirs]
            self.other_reads[where] = before[theirs]
            self.other_read_sites[where] = self.read_sites.take(where)
        self.reads[cells] = accesses
        self.read_sites[cells] = site
        lost = np.flatnonzero(self.reads.take(cells) != accesses)
        if lost.size:
            where = cells.take(lost)
            self.other_reads[where] = accesses.take(lost)
            self.other_read_sites[where] = site
        self.last_read = stamp
