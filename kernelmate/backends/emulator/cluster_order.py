"""Order between the blocks of a cluster, from the cluster's barrier, and the lifetimes of the blocks.

For each lane two stamps of `happens_before` are kept, of the last phase of the cluster's barrier and of the one before: accesses
before the stamp were published by the lane's arrival. A thread that has waited for the last phase knows the former,
another one the latter. An arrival with release publishes the knowledge of the thread and its block; a relaxed one what
the thread has fenced before (PTX ISA, barrier.cluster).

CUDA C++ Programming Guide, Distributed Shared Memory: all blocks of the cluster must have started executing before an
access to their shared memory, and must exist until it has completed. A phase of the barrier shows both, relaxed or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode

if TYPE_CHECKING:
    from kernelmate.backends.emulator.happens_before import Order
    from kernelmate.backends.emulator.machine import Machine, MemoryInstruction


class ClusterOrder:
    """Happens-before order of the accesses of a cluster's threads, from the barriers of the clusters of a batch.

    The tables of stamps have two rows, for the last phase but one and for the last phase; a lane's `_passed` is the row
    that applies to it. Accesses with stamps up to `_published` are published; those up to `_arrived` precede the
    arrival. `_accessed` is the stamp of each lane's last access to the shared memory of each other block, by rank.
    """

    def __init__(self, order: Order, lanes: Lanes) -> None:
        self._order = order
        self._lanes = lanes
        self._size = lanes.cluster_blocks
        self._published = np.zeros((2, lanes.count), np.int64)
        self._arrived = np.zeros((2, lanes.count), np.int64)
        self._publishing = np.zeros(lanes.count, np.int64)
        self._arriving = np.zeros(lanes.count, np.int64)
        self._block_publishes = np.zeros(lanes.blocks, np.int64)
        self._passed = np.zeros(lanes.count, np.int8)
        self._met = np.zeros(lanes.blocks, bool)
        self._slot_of_block = np.full(lanes.total_blocks, -1, np.int64)
        self._filled = np.zeros(0, np.int64)
        self._accessed = np.zeros((lanes.count, self._size), np.int64)
        self._accessed_by = np.zeros((lanes.count, self._size), np.int32)
        self._sites: dict[int, MemoryInstruction] = {}

    def begin(self, used: int) -> None:
        """Starts a batch, whose first `used` slots hold blocks."""
        now, lanes = self._order.now, self._lanes
        for stamps in (self._published, self._arrived, self._publishing, self._arriving):
            stamps.fill(now)
        for table in (self._block_publishes, self._passed, self._met, self._accessed):
            table.fill(0)
        self._slot_of_block[self._filled] = -1
        self._filled = lanes.block[:: lanes.width][:used].copy()
        self._slot_of_block[self._filled] = np.arange(used)

    # ------------------------------------------------------------------------------------------- events

    def arrive(self, lanes: Array, *, relaxed: bool) -> None:
        """Records that lanes arrive at the barrier of their cluster."""
        order = self._order
        slots = self._lanes.slot.take(lanes)
        now = order.tick()
        self._arriving[lanes] = now
        if relaxed:
            own, theirs = order.fenced_in_cluster(lanes)
        else:
            own, theirs = np.full(len(lanes), now), order.known_in_blocks(slots)
        self._publishing[lanes] = np.maximum(self._published[1, lanes], own)
        np.maximum.at(self._block_publishes, slots, theirs)

    def complete(self, slots: Array) -> None:
        """Records that a phase is complete in the clusters of these slots (booleans)."""
        order = self._order
        members = np.flatnonzero(slots[self._lanes.slot])
        gone = members[~order.live[members]]
        self._publishing[gone] = self._arriving[gone] = order.now
        published = np.maximum(self._publishing[members], self._block_publishes[self._lanes.slot[members]])
        for table, stamps in ((self._published, published), (self._arrived, self._arriving[members])):
            table[0, members] = table[1, members]
            table[1, members] = stamps
        self._passed[members] = 0
        used = self._lanes.slot < len(self._filled)
        order.known_by_all = int(self._published[0, used & self._lanes.real].min())
        if order.visibility is not None:
            for first in np.flatnonzero(slots)[:: self._size]:
                order.visibility.meet(range(int(first), int(first) + self._size))

    def wait(self, lanes: Array) -> None:
        """Records that lanes have waited for the last phase."""
        self._passed[lanes] = 1
        self._met[self._lanes.slot.take(lanes)] = True

    def share(self, groups: Array, lanes: Array) -> None:
        """Propagates the observations of each lane to all lanes at the same barrier; `groups` numbers the barriers."""
        known = np.zeros(int(groups.max()) + 1, np.int8)
        np.maximum.at(known, groups, self._passed[lanes])
        self._passed[lanes] = known[groups]

    # ------------------------------------------------------------------------------------------ queries

    def lanes_of(self, numbers: Array) -> Array:
        """Returns the lanes of threads, by their numbers in the grid; -1 for threads of another batch."""
        slots = self._slot_of_block.take(numbers >> self._order.bits)
        lanes = slots * self._lanes.width + self._lanes.lane_of_thread.take(numbers & ((1 << self._order.bits) - 1))
        return np.where(slots < 0, -1, lanes)

    def same_cluster(self, lanes: Array, numbers: Array) -> Array:
        """Returns for each thread, by its number in the grid, whether it belongs to the cluster of the lane."""
        slots = self._slot_of_block.take(numbers >> self._order.bits)
        return np.asarray((slots >= 0) & (slots // self._size == self._lanes.slot.take(lanes) // self._size))

    def near(self, block: int, other: int) -> bool:
        """Returns True if two blocks belong to one cluster of this batch."""
        slots = self._slot_of_block[[block, other]]
        return bool(slots.min() >= 0 and slots[0] // self._size == slots[1] // self._size)

    def knows(self, lanes: Array, numbers: Array, stamps: Array) -> Array:
        """Returns for each access, by its thread's number and its stamp, whether the lane knows it by the barrier."""
        others = self.lanes_of(numbers)
        known = self._published[self._passed.take(lanes), others]
        return np.asarray(self.same_cluster(lanes, numbers) & (stamps < known))

    def known_blocks(self, lane: int) -> Iterator[tuple[int, Array]]:
        """Yields the blocks of a lane's cluster, with the stamps up to which it knows each thread's accesses."""
        width = self._lanes.width
        first = int(self._lanes.slot[lane]) // self._size * self._size
        for slot in range(first, first + self._size):
            stamps = self._published[self._passed[lane], slot * width : (slot + 1) * width]
            if (stamps > self._order.start).any():
                yield int(self._lanes.block[slot * width]), stamps.take(self._lanes.lane_of_thread)

    # ------------------------------------------------------------------------------------------- lifetimes

    def access(self, machine: Machine, site: MemoryInstruction, lanes: Array, slots: Array) -> None:
        """Records accesses to the shared memory of other blocks, by slot; reports those to blocks that may not run yet."""
        ranks = machine.lanes.cluster_rank[slots * self._lanes.width]
        self._sites[site.number] = site
        self._accessed[lanes, ranks] = self._order.now
        self._accessed_by[lanes, ranks] = site.number
        early = ~self._met[self._lanes.slot.take(lanes)]
        if early.any() and self._order.visibility is not None:
            first = self._order.numbers(slots * self._lanes.width)
            early &= ~self._order.visibility.knows(lanes, first, np.full(len(lanes), self._order.start - 1))
        if early.any():
            block = machine.lanes.place_of(int(machine.lanes.block[slots[early][0] * self._lanes.width]))
            machine.findings.report(
                FindingCode.ILLEGAL_ADDRESS,
                site.position,
                lanes[early],
                lambda: (
                    f"accesses shared memory of block {block} of its cluster, which may not have started yet; synchronise the "
                    "cluster first (cluster.sync())"
                ),
            )

    def report_early_end(self, machine: Machine, slot: int) -> None:
        """Reports accesses to the shared memory of a block that has ended, without order to its end."""
        rank = int(machine.lanes.cluster_rank[slot * self._lanes.width])
        first = slot // self._size * self._size * self._lanes.width
        lanes = first + np.flatnonzero(self._accessed[first : first + self._size * self._lanes.width, rank])
        if not lanes.size:
            return
        own = slice(slot * self._lanes.width, (slot + 1) * self._lanes.width)
        stamps = self._accessed[lanes, rank]
        unknown = stamps >= self._arrived[int(self._passed[own].max()), lanes]
        if unknown.any() and self._order.visibility is not None:
            unknown[unknown] = ~self._signalled(slot, lanes[unknown], stamps[unknown])
        if not unknown.any():
            return
        late = lanes[unknown]
        block = machine.lanes.place_of(int(machine.lanes.block[own.start]))
        machine.findings.report(
            FindingCode.ILLEGAL_ADDRESS,
            self._sites[int(self._accessed_by[late[0], rank])].position,
            late,
            lambda: (
                f"accesses shared memory of block {block} of its cluster, and that block may end before; let the blocks end "
                "after a barrier of the cluster (cluster.sync())"
            ),
        )

    def _signalled(self, slot: int, lanes: Array, stamps: Array) -> Array:
        """Returns for each access whether a thread of the block in a slot has learnt of it through memory."""
        assert self._order.visibility is not None
        numbers = self._order.numbers(lanes)
        found = np.zeros(len(lanes), bool)
        for one in range(slot * self._lanes.width, (slot + 1) * self._lanes.width):
            if self._lanes.real[one]:
                found |= self._order.visibility.knows(np.full(len(lanes), one), numbers, stamps)
            if found.all():
                break
        return found
