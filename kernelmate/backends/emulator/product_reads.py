"""Reads of shared memory by `wgmma.mma_async`, which last until the product's group has been waited for.

Bytes that a product may still read must not be written: a write is ordered if some thread of the warpgroup has waited for
the group (`wgmma.wait_group`), and the wait happens before the write (PTX ISA 8.7, wgmma.wait_group). The fence that must
stand between a store and a product is checked with those of bulk copies (`races`, `transfers`).
"""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.findings import Race, at_line
from kernelmate.backends.emulator.lanes import WARPGROUP
from kernelmate.backends.emulator.machine import Machine, Site
from kernelmate.backends.emulator.order import NEVER, Order
from kernelmate.backends.emulator.races import Region
from kernelmate.backends.emulator.types import Array

_CHUNK_SHIFT = 4
"""Products read whole chunks of 16 bytes (`descriptors`)."""


class ProductReads:
    """The last product of each warpgroup that reads a chunk of its block's shared memory.

    Args:
        region: describes the shared memory, for findings.
    """

    def __init__(self, machine: Machine, order: Order, region: Region) -> None:
        lanes = machine.lanes
        self._machine, self._order, self._region = machine, order, region
        self._each = lanes.block_warpgroups
        shape = (self._each, (machine.shared.data.size >> _CHUNK_SHIFT) + 1)
        self._groups, self._sites = np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
        self.any = False
        """True if a product of the batch has read shared memory."""

    def begin(self) -> None:
        """Starts a batch."""
        if self.any:
            self._groups.fill(-1)
        self.any = False

    def note(self, site: Site, lanes: Array, places: Array) -> None:
        """Records reads of chunks at some bytes of all blocks' shared memory, by the warpgroups of `lanes`."""
        self.any = True
        warpgroups = self._machine.lanes.warpgroup[lanes]
        at = warpgroups % self._each, places >> _CHUNK_SHIFT
        self._groups[at] = self._order.products.open_group[warpgroups]
        self._sites[at] = site.number

    def check_write(self, site: Site, lanes: Array, places: Array) -> None:
        """Reports writes of some lanes to bytes that a product may still read."""
        chunks = places >> _CHUNK_SHIFT
        for number in range(self._each):
            groups = self._groups[number].take(chunks)
            read = np.flatnonzero(groups >= 0)
            if not read.size:
                continue
            warpgroups = places[read] // self._machine.shared.stride * self._each + number
            unknown = read[~self._complete(lanes[read], warpgroups, groups[read])]
            if unknown.size:
                first = int(unknown[0])
                product = self._region.sites[int(self._sites[number, chunks[first]])]
                self._report_write(site, product, int(lanes[first]), int(places[first]), len(unknown))

    def _complete(self, lanes: Array, warpgroups: Array, groups: Array) -> Array:
        """Returns whether each lane knows that a group of a warpgroup is complete; the first writing lane of a warp stands for all."""
        keys = np.stack([lanes >> 5, warpgroups, groups])
        _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        asking, warpgroups = lanes[first], warpgroups[first]
        done = self._order.products.done_at(warpgroups, groups[first])
        known = np.zeros(len(first), bool)
        # First lanes of warps first: after a barrier they are enough.
        for threads in (np.arange(0, WARPGROUP, 32), np.arange(WARPGROUP)):
            rest = np.flatnonzero(~known & (done != NEVER))
            if rest.size:
                known[rest] = self._knows_any(asking[rest], warpgroups[rest], threads, done[rest])
        return np.asarray(known[which.reshape(-1)])

    def _knows_any(self, lanes: Array, warpgroups: Array, threads: Array, stamps: Array) -> Array:
        """Returns whether each lane knows what one of some threads of a warpgroup did at a stamp."""
        waiting = self._machine.lanes.warpgroups[warpgroups][:, threads]
        there = waiting >= 0
        times = there.sum(axis=1)
        waits = self._order.packed_at(waiting[there], np.repeat(stamps, times))
        found = np.zeros(waiting.shape, bool)
        found[there] = self._order.happened_before(np.repeat(lanes, times), waits)
        return np.asarray(found.any(axis=1))

    def _report_write(self, site: Site, product: Site, lane: int, place: int, times: int) -> None:
        geometry = self._machine.lanes
        name, within, where = self._region.place(place)
        thread = int(geometry.thread[lane])
        block = geometry.place_of(int(geometry.block[lane]))
        text = (
            f"thread {thread} of block {block} writes {where}, which wgmma.mma_async{at_line(product.position)} may still read; wait for its "
            "group (wgmma.wait_group), then let a barrier tell the other threads"
        )
        positions, threads = (site.position, product.position), (thread, thread // WARPGROUP * WARPGROUP)
        self._machine.findings.races.report(
            Race(self._region.code, "error", positions, name, within, threads, text, times)
        )
