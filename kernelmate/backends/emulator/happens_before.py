"""Happens-before order of a launch's accesses, from barriers, warp barriers, fences and atomics.

Accesses carry a stamp: the number of synchronising events before them. For each pair of threads the stamp is kept up to
which the one knows what the other did; an access with a lower stamp happens before whatever the first thread does next.
Kept that way are whole blocks (the last barrier), warps (`__syncwarp`; lanes of a warp have no order of their own since
Volta), pairs of warps (`part_barriers`), clusters (`cluster_order`), and what release and acquire patterns
add (`visibility`).

PTX ISA, memory consistency model: causality order, in which a barrier synchronises at the scope of its block.

A copy of `cp.async` is a write to shared memory by its thread, without order to anything, that thread's own accesses
included, until the thread has waited for the copy's group. From then on it counts as written at the wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelmate.backends.emulator.async_proxy import ProxyFences, Transfers
from kernelmate.backends.emulator.cluster_order import ClusterOrder
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.matrix_operations import WarpgroupOrder
from kernelmate.backends.emulator.operations import AsyncGroup
from kernelmate.backends.emulator.part_barriers import Arrival, PartBarriers
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.visibility import CLUSTER, CTA, GPU, SYS, Visibility

NEVER = int(np.iinfo(np.int32).max)
"""Stamp of copies that are not complete."""


class CopyGroups:
    """The groups of asynchronous copies of every lane of a batch, or those of products (`wgmma`) of every warpgroup.

    Groups are numbered per lane in the order in which they are committed; `open_group` is the one being collected, those
    below `finished` have been waited for.
    """

    def __init__(self, count: int) -> None:
        self.open_group = np.zeros(count, np.int32)
        self.finished = np.zeros(count, np.int32)
        self._done_at: list[Array] = []

    def begin(self) -> None:
        """Starts a batch."""
        self.open_group.fill(0)
        self.finished.fill(0)
        self._done_at.clear()

    def commit(self, lanes: Array) -> None:
        """Closes the open group of each lane."""
        self.open_group[lanes] += 1

    def wait(self, lanes: Array, left: int, now: int) -> None:
        """Records that lanes wait until at most `left` of their committed groups are pending."""
        upto = np.maximum(self.open_group[lanes] - left, self.finished[lanes])
        while len(self._done_at) < int(upto.max()):
            self._done_at.append(np.full(len(self.open_group), NEVER, np.int32))
        for group in range(int(self.finished[lanes].min()), int(upto.max())):
            chosen = lanes[(upto > group) & (self.finished[lanes] <= group)]
            self._done_at[group][chosen] = now
        self.finished[lanes] = upto

    def done_at(self, lanes: Array, groups: Array) -> Array:
        """Returns the stamp at which the copies of a lane's group were awaited; `NEVER` if they were not."""
        found = np.full(len(lanes), NEVER, np.int64)
        for group in np.unique(groups):
            if group < len(self._done_at):
                chosen = groups == group
                found[chosen] = self._done_at[group][lanes[chosen]]
        return found


STAMP_SHIFT = 32
"""An access is packed into one number: its stamp above, the number of its thread in the grid below."""
NUMBER_MASK = np.int64((1 << STAMP_SHIFT) - 1)
"""The part of a packed access that is its thread's number."""
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gl": GPU, "gpu": GPU, "sys": SYS}
"""Memory scopes by qualifier, wider ones larger; `membar.gl` is gpu scope."""


class Order:
    """The clocks of one launch.

    Args:
        patterns: True if the kernel has fences or ordered atomics, by which threads may synchronise through memory.

    Attributes:
        now: stamp of current accesses.
        start: stamp at which this batch began.
        live: lanes with a running thread.
        known_by_all: accesses before this stamp are visible to all threads that share memory with their own.
        visibility: synchronisation by release and acquire patterns; None if the kernel has none.
        clusters: order between the blocks of a cluster; None if clusters have one block.
        copies: state of asynchronous copies.
        products: of the products of warpgroups.
        transfers, proxies: bulk copies, and the fences between generic accesses and those of the async proxy.
    """

    def __init__(self, lanes: Lanes, live: Array, *, patterns: bool) -> None:
        self._lanes = lanes
        self.live = live
        self.bits = max(lanes.width - 1, 1).bit_length()
        self.now = 0
        self.start = 0
        self.known_by_all = 0
        self._ids = np.zeros(lanes.count, np.int64)
        self._block = np.zeros(lanes.blocks, np.int64)
        self._warp = np.zeros(lanes.warps, np.int64)
        self._pairs: Array | None = None
        self._parts = PartBarriers(lanes)
        self._packed = self._ids
        self._packed_at = -1
        self.clusters = ClusterOrder(self, lanes) if lanes.cluster_blocks > 1 else None
        self.visibility = Visibility(self, lanes) if patterns else None
        self.copies = CopyGroups(lanes.count)
        self.transfers = Transfers(self, lanes)
        self.proxies = ProxyFences(self, lanes)
        self.products = CopyGroups(len(lanes.warpgroups))

    def begin(self, used: int) -> None:
        """Starts a batch: the first `used` slots hold other blocks, with no order to earlier accesses."""
        lanes = self._lanes
        self.now += 1
        self.start = self.known_by_all = self.now
        self._ids[:] = (lanes.block << self.bits) | lanes.thread
        self._block[:used] = self.now
        self._block[used:] = np.iinfo(np.int64).max
        self._warp[:] = self.now
        self._packed_at = -1
        self._pairs = None
        self._parts.begin()
        self.copies.begin()
        self.transfers.begin()
        self.proxies.begin()
        self.products.begin()
        if self.clusters is not None:
            self.clusters.begin(used)
        if self.visibility is not None:
            self.visibility.begin()

    def covers(self, blocks: int) -> bool:
        """Returns True if every thread of a grid has a distinct number here."""
        return blocks << self.bits < 1 << STAMP_SHIFT

    # ------------------------------------------------------------------------------------- who and when

    def packed(self, lanes: Array) -> Array:
        """Packs the lanes' current accesses as numbers for shadow memory."""
        if self._packed_at != self.now:
            self._packed = self._ids + (np.int64(self.now) << STAMP_SHIFT)
            self._packed_at = self.now
        whole = len(lanes) == len(self._packed) and np.array_equal(lanes, self._lanes.iota)
        return self._packed if whole else self._packed.take(lanes)

    def packed_at(self, lanes: Array, stamps: Array | int) -> Array:
        """Packs accesses that lanes make at these stamps."""
        return np.asarray(self._ids.take(lanes) + (np.asarray(stamps, np.int64) << STAMP_SHIFT))

    @staticmethod
    def stamps_of(accesses: Array) -> Array:
        """Returns the stamps of packed accesses."""
        return accesses >> STAMP_SHIFT

    def same_thread(self, accesses: Array, others: Array) -> Array:
        """Returns for each pair of packed accesses whether they are by one thread."""
        return np.asarray(((accesses ^ others) & NUMBER_MASK) == 0)

    def thread_of(self, access: int) -> tuple[int, int]:
        """Returns the flat indices of the block and of the thread in it."""
        number = access & int(NUMBER_MASK)
        return number >> self.bits, number & ((1 << self.bits) - 1)

    def numbers(self, lanes: Array) -> Array:
        """Returns the grid-wide indices of the threads in some lanes."""
        return np.asarray(self._ids.take(lanes))

    def lanes_beside(self, lanes: Array, others: Array) -> Array:
        """Returns the lanes of the threads of packed accesses, which belong to the same blocks or clusters as `lanes`."""
        if self.clusters is not None:
            return self.clusters.lanes_of(others & NUMBER_MASK)
        threads = others & ((1 << self.bits) - 1)
        return np.asarray(self._lanes.slot.take(lanes) * self._lanes.width + self._lanes.lane_of_thread.take(threads))

    def same_block(self, lanes: Array, others: Array) -> Array:
        """Returns for each packed access whether it is by a thread of the lane's own block."""
        return np.asarray((others & NUMBER_MASK) >> self.bits == self._ids.take(lanes) >> self.bits)

    def same_cluster(self, lanes: Array, others: Array) -> Array:
        """Returns for each packed access whether it is by a thread of the lane's own cluster."""
        if self.clusters is None:
            return self.same_block(lanes, others)
        return self.clusters.same_cluster(lanes, others & NUMBER_MASK)

    # ------------------------------------------------------------------------------------------- events

    def tick(self) -> int:
        """Records a synchronising event: later accesses get a new stamp."""
        self.now += 1
        return self.now

    def copy_group(self, lanes: Array, operation: AsyncGroup) -> None:
        """Records that lanes close or await groups of asynchronous copies."""
        if operation.commits:
            self.copies.commit(lanes)
        if operation.left is not None:
            self.copies.wait(lanes, operation.left, self.now)

    def product_group(self, warpgroups: Array, operation: WarpgroupOrder) -> None:
        """Records that warpgroups close or await groups of products."""
        if operation.action == "commit":
            self.products.commit(warpgroups)
        elif operation.action == "wait":
            self.products.wait(warpgroups, operation.left, self.now)

    def barrier(self, blocks: Array) -> None:
        """Records that all threads of these block slots (booleans) have passed a barrier."""
        self._block[blocks] = self.tick()
        if self.clusters is None:
            self.known_by_all = int(self._block.min())
        else:
            lanes = np.flatnonzero(blocks[self._lanes.slot])
            self.clusters.share(self._lanes.slot.take(lanes), lanes)
        if self.visibility is not None:
            self.visibility.barrier(blocks)

    def arrive(self, lanes: Array) -> Arrival:
        """Records that lanes arrive at a barrier that part of their blocks may meet at."""
        brought = None if self.visibility is None else self.visibility.arrive_in_part(lanes)
        return self._parts.arrive(lanes, self.tick(), brought or {})

    def part_barrier(self, arrivals: Sequence[Arrival], waiting: Array) -> None:
        """Records that waiting lanes, at least one, pass a barrier at which only a part of their blocks' threads wait."""
        self._parts.meet(arrivals, waiting)
        if self.clusters is not None:
            self.clusters.share(self._lanes.slot.take(waiting), waiting)
        if self.visibility is not None:
            self.visibility.meet_in_part([one.brought for one in arrivals], waiting)

    def warp_barrier(self, lanes: Array, masks: Array) -> None:
        """Records that lanes pass `__syncwarp` with these masks."""
        stamp = self.tick()
        warps = lanes >> 5
        living = np.packbits(self.live, bitorder="little").view(np.uint32)[warps]
        whole = (masks & living) == living
        if whole.any():
            self._warp[warps[whole]] = stamp
        if not whole.all():
            self._meet_in_part(lanes[~whole], masks[~whole], stamp)
        if self.clusters is not None:
            self.clusters.share(warps, lanes)
        if self.visibility is not None:
            self.visibility.warp_barrier(lanes)

    def _meet_in_part(self, lanes: Array, masks: Array, stamp: int) -> None:
        if self._pairs is None:
            self._pairs = np.zeros((self._lanes.count, 32), np.int64)
        members = (masks[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) == 1
        for key in np.unique((lanes >> 5 << 32) | masks):
            mine = lanes[((lanes >> 5 << 32) | masks) == key]
            # Every participant passes on its knowledge of others.
            self._pairs[mine] = self._pairs[mine].max(axis=0)
        self._pairs[lanes] = np.where(members, stamp, self._pairs[lanes])

    def fence(self, lanes: Array, scope: int) -> None:
        """Records that lanes execute a fence of a scope."""
        self.tick()
        if self.visibility is not None:
            self.visibility.fence(lanes, scope, self._block)

    # ------------------------------------------------------------------------------------------ queries

    def happened_before(self, lanes: Array, others: Array) -> Array:
        """Returns for each packed access whether it happens before the current access of its lane."""
        numbers = others & NUMBER_MASK
        stamps = others >> STAMP_SHIFT
        own = self._ids.take(lanes)
        same_block = numbers >> self.bits == own >> self.bits
        found = numbers == own
        found |= same_block & (stamps < self._block.take(self._lanes.slot.take(lanes)))
        rest = np.flatnonzero(~found)
        if rest.size:
            found[rest] = self._closely(lanes[rest], numbers[rest], stamps[rest], own[rest], same_block[rest])
        return np.asarray(found)

    def _closely(self, lanes: Array, numbers: Array, stamps: Array, own: Array, same_block: Array) -> Array:
        found = same_block & (numbers >> 5 == own >> 5) & (stamps < self._warp.take(lanes >> 5))
        return np.asarray(found | self._in_parts(lanes, numbers, stamps, own, same_block))

    def known_in_parts(self, lanes: Array, others: Array) -> Array:
        """Returns for each packed access whether more than barriers of whole blocks and warps orders it before the lane."""
        numbers, own = others & NUMBER_MASK, self._ids.take(lanes)
        same_block = numbers >> self.bits == own >> self.bits
        return self._in_parts(lanes, numbers, others >> STAMP_SHIFT, own, same_block)

    def _in_parts(self, lanes: Array, numbers: Array, stamps: Array, own: Array, same_block: Array) -> Array:
        found = np.zeros(len(lanes), bool)
        if self._pairs is not None:
            same_warp = same_block & (numbers >> 5 == own >> 5)
            found |= same_warp & (stamps < self._pairs[lanes, numbers & 31])
        threads = np.where(same_block, numbers & ((1 << self.bits) - 1), 0)
        found |= same_block & self._parts.knows(lanes, threads, stamps)
        if self.clusters is not None:
            found |= self.clusters.knows(lanes, numbers, stamps)
        if self.visibility is not None and not found.all():
            rest = np.flatnonzero(~found)
            found[rest] = self.visibility.knows(lanes[rest], numbers[rest], stamps[rest])
        return np.asarray(found)

    # ------------------------------------------------------------- clocks for visibility and clusters

    def block_known(self, slot: int) -> int:
        """Returns the stamp up to which a block's threads know each other's accesses."""
        return int(self._block[slot])

    def known_now(self) -> tuple[Array, Array]:
        """Returns the stamps up to which the threads of each block, and of each warp, know each other's accesses."""
        return self._block.copy(), self._warp.copy()

    def known_in_blocks(self, slots: Array) -> Array:
        """Returns for each block slot the stamp as of `block_known`."""
        return np.asarray(self._block.take(slots))

    def fenced_in_cluster(self, lanes: Array) -> tuple[Array, Array]:
        """Returns the stamps of the last fences of lanes with at least cluster scope, and what their blocks knew then."""
        if self.visibility is None:
            return np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)
        return self.visibility.fenced(lanes, CLUSTER)

    def warp_known(self, lane: int) -> Array:
        """Returns the stamps up to which a lane knows the lanes of its warp by `__syncwarp` alone."""
        whole = np.full(32, self._warp[lane >> 5])
        return whole if self._pairs is None else np.maximum(whole, self._pairs[lane])

    def knows_parts(self, lane: int) -> bool:
        """Returns True if a lane may know others of its block better than its warp does."""
        return self._pairs is not None or self._parts.known_by(lane) is not None

    def known_by_parts(self, lane: int) -> Array | None:
        """Returns the stamps up to which a lane knows the lanes of its block by barriers of part of it; None where it knows none."""
        return self._parts.known_by(lane)
