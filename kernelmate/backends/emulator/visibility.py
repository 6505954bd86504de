"""Synchronisation of threads through memory: release and acquire patterns of the PTX memory model.

A thread that executes a fence and then a strong write (an atomic, a volatile or relaxed store), or a release write,
publishes its knowledge; a thread that reads the value by a strong read followed by a fence, or by an acquire read,
learns it. Atomics in between propagate it. Scopes limit both: other blocks of the cluster need cluster scope on both
sides, others gpu scope.

Three patterns of CUDA code that the memory model does not cover, but that work on every GPU, count as order too: a block
or warp barrier after the strong read stands for the reader's fence; stores that each thread fenced before a barrier are
published by the thread that signals after it; and what a thread learns between its fence and its signal is passed on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.types import Array

if TYPE_CHECKING:
    from kernelmate.backends.emulator.happens_before import Order

CTA, CLUSTER, GPU, SYS = 1, 2, 3, 4
"""Memory scopes, wider ones larger. Each includes the narrower ones; the device is all that runs here."""
MOST_EVENTS = 200_000
"""Maximum number of releases and acquires tracked individually; a launch with more gets the benefit of the doubt afterwards."""
_ENTRIES_KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Release:
    """The releases of a block at one location up to now.

    Attributes:
        published: by scope, for each thread of the block the stamp up to which its accesses are published there.
    """

    position: int
    published: dict[int, Array]


@dataclass(slots=True, eq=False)
class _Log:
    """All releases at one location that a read of its present value observes.

    Attributes:
        entries: releases by block, in order.
        nested: knowledge of other logs by the releasing threads: for each, ascending positions with the amount known
            from there.
    """

    length: int = 0
    entries: dict[int, list[_Release]] = field(default_factory=dict)
    nested: dict[tuple[_Log, int], tuple[list[int], list[int]]] = field(default_factory=dict)

    def find(self, block: int, upto: int) -> _Release | None:
        """Returns the latest release of a block among the first `upto`."""
        for entry in reversed(self.entries.get(block, ())):
            if entry.position < upto:
                return entry
        return None

    def add(self, releases: Iterable[tuple[int, dict[int, Array]]], known: Known) -> None:
        """Adds a release by a thread with the knowledge `known`: the stamps that it publishes for each block, by scope."""
        for block, published in releases:
            mine = self.entries.setdefault(block, [])
            if mine:
                # A reader of the last value also observes earlier releases: many threads may increment one word.
                before = mine[-1].published
                published = before | {
                    scope: np.maximum(before[scope], stamps) if scope in before else stamps
                    for scope, stamps in published.items()
                }
            mine.append(_Release(self.length, published))
            if len(mine) > _ENTRIES_KEPT:
                del mine[: _ENTRIES_KEPT // 2]
        for (log, reach), length in known.items():
            if log is self:
                continue
            positions, lengths = self.nested.setdefault((log, reach), ([], []))
            if not lengths or lengths[-1] < length:
                positions.append(self.length)
                lengths.append(length)
        self.length += 1

    def inner(self, upto: int) -> Iterator[tuple[_Log, int, int]]:
        """Returns how much of other logs the releasing threads knew at the first `upto` releases."""
        for (log, reach), (positions, lengths) in self.nested.items():
            place = bisect_left(positions, upto)
            if place:
                yield log, lengths[place - 1], reach


Known = dict[tuple[_Log, int], int]
"""Number of known releases of each log, and the scope to which the reader's own limits them."""


class Visibility:
    """Release and acquire patterns of one launch."""

    def __init__(self, order: Order, lanes: Lanes) -> None:
        self._order = order
        self._lanes = lanes
        self._scopes = (CTA, CLUSTER, GPU) if lanes.cluster_blocks > 1 else (CTA, GPU)
        self._fenced = {scope: np.zeros(lanes.count, np.int64) for scope in self._scopes}
        self._known_at_fence = {scope: np.zeros(lanes.count, np.int64) for scope in self._scopes}
        self._logs: dict[int, _Log] = {}
        self._pending: dict[int, Known] = {}
        self._by_lane: dict[int, Known] = {}
        self._by_warp: dict[int, Known] = {}
        self._by_slot: dict[int, Known] = {}
        self._events = 0

    @property
    def exhausted(self) -> bool:
        """True if there were too many events to follow."""
        return self._events > MOST_EVENTS

    def begin(self) -> None:
        """Starts a batch: lanes hold other threads; releases in memory stay."""
        for stamps in (*self._fenced.values(), *self._known_at_fence.values()):
            stamps.fill(0)
        self._pending.clear()
        self._by_lane.clear()
        self._by_warp.clear()
        self._by_slot.clear()

    # ------------------------------------------------------------------------------------------- events

    def fence(self, lanes: Array, scope: int, block_known: Array) -> None:
        """Handles a fence: earlier accesses can be published, and values read are learnt."""
        known = block_known.take(self._lanes.slot.take(lanes))
        for level in self._scopes:
            if scope >= level:
                self._fenced[level][lanes] = self._order.now
                self._known_at_fence[level][lanes] = known
        if self._pending:
            self._learn(lanes, scope)

    def barrier(self, blocks: Array) -> None:
        """Handles a barrier: knowledge and reads of one thread become known to all of the block."""
        slots = self._lanes.slot
        for table in (self._pending, self._by_lane):
            for lane in [lane for lane in table if blocks[slots[lane]]]:
                _merge(self._by_slot.setdefault(int(slots[lane]), {}), table.pop(lane))
        for warp in [warp for warp in self._by_warp if blocks[slots[32 * warp]]]:
            _merge(self._by_slot.setdefault(int(slots[32 * warp]), {}), self._by_warp.pop(warp))

    def arrive_in_part(self, lanes: Array) -> dict[int, Known]:
        """Returns by warp the knowledge and reads that lanes bring to a barrier of part of a block."""
        if not self._pending and not self._by_lane and not self._by_warp:
            return {}
        self._learn(lanes, SYS)
        held = set(self._by_warp).intersection(_warps_of(lanes))
        found = {warp: dict(self._by_warp[warp]) for warp in held}
        for lane in set(self._by_lane).intersection(lanes.tolist()) if self._by_lane else ():
            _merge(found.setdefault(lane >> 5, {}), self._by_lane[lane])
        return found

    def meet_in_part(self, brought: Iterable[dict[int, Known]], waiting: Array) -> None:
        """Handles a barrier of part of a block: the waiting warps learn everything that the arriving lanes knew."""
        together: dict[int, Known] = {}
        for one in brought:
            for warp, known in one.items():
                _merge(together.setdefault(int(self._lanes.slot[32 * warp]), {}), known)
        if not together:
            return
        for warp in _warps_of(waiting):
            known = together.get(int(self._lanes.slot[32 * warp]), {})
            if known:
                _merge(self._by_warp.setdefault(warp, {}), known)
        # What a waiting lane knew alone, it brought along.
        for lane in set(self._by_lane).intersection(waiting.tolist()) if self._by_lane else ():
            del self._by_lane[lane]

    def fenced(self, lanes: Array, scope: int) -> tuple[Array, Array]:
        """Returns the stamps of the lanes' last fences of a scope, and up to which their blocks knew each other then."""
        return self._fenced[scope].take(lanes), self._known_at_fence[scope].take(lanes)

    def meet(self, slots: Iterable[int]) -> None:
        """Handles the barrier of a cluster: knowledge and reads of one thread become known to all blocks in the slots."""
        together: Known = {}
        members = np.isin(np.arange(self._lanes.blocks), list(slots))
        self.barrier(members)
        for slot in np.flatnonzero(members):
            _merge(together, self._by_slot.get(int(slot), {}))
        if together:
            self._by_slot.update({int(slot): dict(together) for slot in np.flatnonzero(members)})

    def warp_barrier(self, lanes: Array) -> None:
        """Handles a warp barrier: observations and reads of each lane become known to the other lanes at the barrier."""
        if not self._pending and not self._by_lane:
            return
        self._learn(lanes, SYS)
        for warp in np.unique(lanes >> 5):
            members = lanes[lanes >> 5 == warp]
            together: Known = {}
            for lane in members:
                _merge(together, self._by_lane.get(int(lane), {}))
            if together:
                self._by_lane.update({int(lane): dict(together) for lane in members})

    def _learn(self, lanes: Array, scope: int) -> None:
        """Adds the knowledge that lanes obtained by earlier strong reads."""
        waiting = set(self._pending)
        for lane in waiting.intersection(lanes.tolist()) if len(lanes) > 1 else waiting & {int(lanes[0])}:
            read = self._pending.pop(lane)
            _merge(
                self._by_lane.setdefault(lane, {}),
                {(log, min(reach, scope)): length for (log, reach), length in read.items()},
            )

    def strong_access(
        self, lanes: Array, addresses: Iterable[int], *, scope: int, reads: bool, writes: bool, acquires: bool, releases: bool
    ) -> None:  # fmt: skip
        """Records strong reads or writes of lanes, in sequence; an atomic whose old value is used does both.

        Args:
            lanes: the lanes.
            addresses: a unique key of the location per lane.
            scope: the operation's scope.
            reads: True for a load, or an atomic whose old value is used.
            writes: True for a store or an atomic.
            acquires: True if it orders later accesses without a fence.
            releases: True if it orders earlier accesses without a fence.
        """
        if self.exhausted or (not writes and not self._logs):
            return
        if releases:
            self._order.tick()
        shared: dict[tuple[int, int], Array] = {}
        for lane, address in zip(lanes.tolist(), addresses, strict=True):
            log = self._logs.get(address)
            if reads and log is not None and log.length:
                self._events += 1
                read = {(log, min(scope, GPU)): log.length}
                _merge((self._by_lane if acquires else self._pending).setdefault(lane, {}), read)
            if writes:
                self._publish(lane, address, log if reads else None, scope, shared if releases else None)

    def update(self, lanes: Array, addresses: Iterable[int], *, scope: int, releases: bool) -> None:
        """Handles atomics with an unused old value: they publish, and propagate earlier publications."""
        if self.exhausted:
            return
        if releases:
            self._order.tick()
        shared: dict[tuple[int, int], Array] = {}
        for lane, address in zip(lanes.tolist(), addresses, strict=True):
            self._publish(lane, address, self._logs.get(address), scope, shared if releases else None)

    def _publish(
        self, lane: int, address: int, log: _Log | None, scope: int, shared: dict[tuple[int, int], Array] | None
    ) -> None:
        """Adds what a lane publishes; `shared` has what the lanes of a release have in common, and is None without one."""
        found = (
            (level, self._published(lane, level) if shared is None else self._released(lane, level, shared))
            for level in self._scopes
            if level <= scope
        )
        published = {level: stamps for level, stamps in found if stamps is not None}
        if CTA not in published:
            if log is None:
                self._logs.pop(address, None)
            return
        self._events += 1
        if log is None:
            log = self._logs[address] = _Log()
        releases_of = {int(self._lanes.block[lane]): published}
        if self._order.clusters is not None:
            # A thread's release includes the order that the barrier of its cluster established.
            for block, stamps in self._order.clusters.known_blocks(lane):
                own = releases_of.get(block, {})
                releases_of[block] = {level: np.maximum(own.get(level, stamps), stamps) for level in published}
        log.add(releases_of.items(), self._known(lane))

    def _known(self, lane: int) -> Known:
        """Returns the accesses that happen before a lane's next one, for the lane itself or shared with its warp or block."""
        known: Known = {}
        _merge(known, self._by_slot.get(int(self._lanes.slot[lane]), {}))
        _merge(known, self._by_warp.get(lane >> 5, {}))
        _merge(known, self._by_lane.get(lane, {}))
        return known

    def _released(self, lane: int, level: int, shared: dict[tuple[int, int], Array]) -> Array:
        """Returns `_published` of a release: the same for all lanes of a warp that know no part of their block better.

        The lane itself publishes all that it did.
        """
        if self._order.knows_parts(lane):
            stamps = self._stamps(lane, level, self._order.now, self._order.block_known(int(self._lanes.slot[lane])))
        else:
            key = lane >> 5, level
            if key not in shared:
                before = self._order.block_known(int(self._lanes.slot[lane]))
                shared[key] = self._stamps(lane, level, self._order.now, before)
            stamps = shared[key].copy()
        stamps[self._lanes.thread[lane]] = self._order.now
        return stamps

    def _published(self, lane: int, level: int) -> Array | None:
        """Returns, per thread of the lane's block, the stamp up to which a lane's access publishes after its last fence.

        The result is None if it publishes nothing.
        """
        own = int(self._fenced[level][lane])
        stamps = self._stamps(lane, level, own, int(self._known_at_fence[level][lane]))
        if not own and not stamps.any():
            return None
        stamps[self._lanes.thread[lane]] = own
        return stamps

    def _stamps(self, lane: int, level: int, own: int, before: int) -> Array:
        """Returns, per thread of the lane's block, what the lane knows of it and may publish.

        `own` is the stamp up to which the lane's own accesses are published, and `before` what its block knew of each other
        by then.
        """
        lanes, order = self._lanes, self._order
        first = int(lanes.slot[lane]) * lanes.width
        mine = slice(first, first + lanes.width)
        fenced = self._fenced[level][mine]
        stamps = np.maximum(before, np.minimum(order.block_known(int(lanes.slot[lane])), fenced))
        if (parts := order.known_by_parts(lane)) is not None:
            stamps = np.maximum(stamps, np.where(parts <= own, parts, np.minimum(parts, fenced)))
        warp = (lane - first) & ~31
        mates = order.warp_known(lane)
        together = slice(warp, warp + 32)
        met = np.where(mates <= own, mates, np.minimum(mates, fenced[together]))
        stamps[together] = np.maximum(stamps[together], met)
        by_thread = np.empty_like(stamps)
        by_thread[lanes.thread[mine]] = stamps
        return by_thread

    # ------------------------------------------------------------------------------------------ queries

    def knows(self, lanes: Array, numbers: Array, stamps: Array) -> Array:
        """Returns the mask of lanes that have observed an access, given by its thread's number in the grid and its stamp."""
        if self.exhausted:
            return np.ones(len(lanes), bool)
        found = np.zeros(len(lanes), bool)
        if not self._by_lane and not self._by_warp and not self._by_slot:
            return found
        bits = self._order.bits
        blocks = numbers >> bits
        threads = numbers & ((1 << bits) - 1)
        for lane, group in self.askers(lanes):
            home = int(self._lanes.block[lane])
            for block in np.unique(blocks[group]):
                chosen = group[blocks[group] == block]
                found[chosen] = self._learnt(lane, int(block), home, threads[chosen], stamps[chosen])
        return found

    def askers(self, lanes: Array) -> Iterator[tuple[int, Array]]:
        """Yields a lane of each set of lanes of a block that know the same of others, and the indices of these lanes."""
        alike: dict[object, int] = {}
        different, where = np.unique(lanes, return_inverse=True)
        chosen: list[int] = []
        for lane in different.tolist():
            warp = lane >> 5
            known = self._by_lane.get(lane)
            key = (
                int(self._lanes.slot[lane]),
                warp if warp in self._by_warp else -1,
                None if known is None else frozenset(known.items()),
            )
            chosen.append(alike.setdefault(key, lane))
        asker = np.array(chosen)[where]
        order = np.argsort(asker, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(asker[order])) + 1):
            yield int(asker[group[0]]), group

    def _learnt(self, lane: int, block: int, home: int, threads: Array, stamps: Array) -> Array:
        """Returns the mask of lanes whose knowledge covers accesses of one block's threads."""
        found = np.zeros(len(threads), bool)
        queue = [(log, length, reach) for (log, reach), length in self._known(lane).items()]
        seen: dict[tuple[int, int], int] = {}
        needed = self._distance(block, home)
        while queue and not found.all():
            log, length, reach = queue.pop()
            if seen.get((id(log), reach), 0) >= length:
                continue
            seen[id(log), reach] = length
            entry = log.find(block, length)
            if entry is not None and reach >= needed and needed in entry.published:
                found |= stamps < entry.published[needed][threads]
            queue += [(inner, upto, min(reach, narrow)) for inner, upto, narrow in log.inner(length)]
        return found

    def _distance(self, block: int, home: int) -> int:
        """Returns the narrowest scope that includes two blocks."""
        if block == home:
            return CTA
        clusters = self._order.clusters
        return CLUSTER if clusters is not None and clusters.near(block, home) else GPU


def _warps_of(lanes: Array) -> list[int]:
    found: list[int] = np.flatnonzero(np.bincount(lanes >> 5)).tolist()
    return found


def _merge(into: Known, more: Known) -> None:
    for key, length in more.items():
        if into.get(key, 0) < length:
            into[key] = length
