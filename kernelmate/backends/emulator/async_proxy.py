"""Accesses of the async proxy: which threads know a bulk copy complete, and which generic writes it sees.

A bulk copy is executed at once, but counts as under way for every thread that does not know of its end. A thread knows it
if it has tested the mbarrier that counts the copy's bytes after their phase was complete, or has waited for the group of
its own copies, or if such an observation by another thread happens before its access.

In the other direction, a bulk copy sees a write of the generic proxy only if a proxy fence lies between the two.

PTX ISA, Memory Consistency Model: Proxies, Causality order; Asynchronous Operations: Async proxy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.types import Array

if TYPE_CHECKING:
    from kernelmate.backends.emulator.happens_before import Order

_MOST_CELLS = 64 << 20
"""Maximum number of pairs of a completion and a thread that are tracked; later copies count as known to everyone."""
_MOST_OBSERVATIONS = 1024
"""Maximum number of observations kept per barrier; copies that older ones made visible count as visible to everyone."""
_MOST_FENCES = 64
"""Maximum number of proxy fences kept; a write before the oldest one counts as fenced."""


@dataclass(frozen=True, slots=True)
class _Observation:
    """Lanes that know, from the stamp on, the phases before `phase` complete."""

    phase: int
    lanes: Array
    stamp: int


@dataclass(slots=True, eq=False)
class _BarrierPhases:
    """The phases of one mbarrier: how many are complete, and who has observed it.

    Phases before `forgotten` are known to all. `row` is that of the end of `row_phase`, the last phase with a copy.
    """

    phase: int = 0
    forgotten: int = 0
    observations: list[_Observation] = field(default_factory=list)
    row_phase: int = -1
    row: int = -1


@dataclass(slots=True, eq=False)
class _Ending:
    """The end of a copy's reads or writes: a phase of a barrier, or the wait of its thread (`observation`, None before)."""

    row: int
    barrier: _BarrierPhases | None = None
    phase: int = 0
    observation: _Observation | None = None

    def observations(self) -> Iterable[_Observation]:
        """Returns the observations of this end, the earliest first."""
        if self.barrier is None:
            return () if self.observation is None else (self.observation,)
        return (seen for seen in self.barrier.observations if seen.phase > self.phase)

    @property
    def forgotten(self) -> bool:
        """True if its observations are no longer recorded."""
        return self.barrier is not None and self.phase < self.barrier.forgotten


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The ends of one lane's bulk copy."""

    reads: _Ending
    writes: _Ending


class Transfers:
    """The bulk copies of a batch.

    A copy is named by its packed access, which is unique because each bulk copy begins with a tick of the clock.

    Attributes:
        exhausted: True if there were too many copies to track.
    """

    def __init__(self, order: Order, lanes: Lanes) -> None:
        self._order = order
        self._lanes = lanes
        # A row for each end of copies: the threads of the copy's block that were found to know it.
        self._known = np.zeros((1, lanes.width), bool)
        self._rows = 0
        self._transfers: dict[int, _Transfer] = {}
        self._barriers: dict[int, _BarrierPhases] = {}
        self._open: dict[int, list[_Transfer]] = {}
        self._groups: dict[int, list[list[_Transfer]]] = {}
        # By lane, how many of its pending groups are known to have read their sources.
        self._read: dict[int, int] = {}
        self.exhausted = False

    def begin(self) -> None:
        """Starts a batch."""
        self._known = np.zeros((1, self._lanes.width), bool)
        self._rows = 0
        for table in (self._transfers, self._barriers, self._open, self._groups, self._read):
            table.clear()

    # ------------------------------------------------------------------------------------------- events

    def start(self, lanes: Array, barriers: Array | None) -> None:
        """Lanes begin a bulk copy each, counted by these barriers; None for copies in each thread's open group."""
        packed = self._order.packed(lanes)
        for number, (lane, access) in enumerate(zip(lanes.tolist(), packed.tolist(), strict=True)):
            if barriers is None:
                transfer = _Transfer(_Ending(self._row()), _Ending(self._row()))
                self._open.setdefault(lane, []).append(transfer)
            else:
                barrier = self._barriers.setdefault(int(barriers[number]), _BarrierPhases())
                if barrier.row_phase != barrier.phase:
                    barrier.row_phase, barrier.row = barrier.phase, self._row()
                ending = _Ending(barrier.row, barrier, barrier.phase)
                transfer = _Transfer(ending, ending)
            self._transfers[access] = transfer

    def _row(self) -> int:
        """Returns a new row of `_known`, or -1 if there are too many."""
        if (self._rows + 1) * self._lanes.width > _MOST_CELLS:
            self.exhausted = True
            return -1
        self._rows += 1
        if self._rows > len(self._known):
            self._known = np.concatenate((self._known, np.zeros_like(self._known)))
        return self._rows - 1

    def turned(self, barriers: Iterable[int]) -> None:
        """Records that phases of these barriers are complete."""
        for barrier in barriers:
            if barrier in self._barriers:
                self._barriers[barrier].phase += 1

    def observe(self, lanes: Array, barriers: Array) -> None:
        """Lanes have seen a phase of a barrier complete."""
        for barrier in np.unique(barriers).tolist():
            found = self._barriers.get(barrier)
            if found is None:
                continue
            found.observations.append(_Observation(found.phase, lanes[barriers == barrier], self._order.now))
            if len(found.observations) > _MOST_OBSERVATIONS:
                del found.observations[: _MOST_OBSERVATIONS // 2]
                found.forgotten = found.observations[0].phase

    def commit(self, lanes: Array) -> None:
        """Lanes close their open groups."""
        for lane in lanes.tolist():
            self._groups.setdefault(lane, []).append(self._open.pop(lane, []))

    def wait(self, lanes: Array, left: int, *, reads: bool) -> None:
        """Lanes wait until at most `left` of their groups are pending, or until the others have read their sources."""
        for lane in lanes.tolist():
            groups = self._groups.get(lane, [])
            upto, done = max(len(groups) - left, 0), self._read.get(lane, 0)
            seen = _Observation(1, np.array([lane]), self._order.now)
            for transfer in (one for group in groups[done if reads else 0 : upto] for one in group):
                for ending in (transfer.reads,) if reads else (transfer.reads, transfer.writes):
                    ending.observation = ending.observation or seen
            if not reads:
                del groups[:upto]
            self._read[lane] = max(done, upto) if reads else max(done - upto, 0)

    # ------------------------------------------------------------------------------------------ queries

    def ended(self, lanes: Array, others: Array, *, reads: bool) -> Array:
        """Returns for each lane whether it knows a copy's reads, or else its writes, complete.

        Copies of earlier batches count as accesses of their threads.
        """
        found = np.zeros(len(lanes), bool)
        threads = self._lanes.thread.take(lanes)
        names, inverse = np.unique(others, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        for name, chosen in zip(names.tolist(), np.split(order, np.cumsum(np.bincount(inverse))[:-1]), strict=True):
            transfer = self._transfers.get(name)
            if transfer is None:
                found[chosen] = self._order.happened_before(lanes[chosen], others[chosen])
                continue
            ending = transfer.reads if reads else transfer.writes
            if ending.row < 0 or ending.forgotten:
                found[chosen] = True
                continue
            same = self._order.same_block(lanes[chosen], others[chosen])
            near, far = chosen[same], chosen[~same]
            known = self._known[ending.row]
            rest = near[~known[threads[near]]]
            if rest.size:
                known[threads[rest]] = self._observed(ending, lanes[rest])
            found[near] = known[threads[near]]
            if far.size:
                found[far] = self._observed(ending, lanes[far])
        return found

    def _observed(self, ending: _Ending, lanes: Array) -> Array:
        """Returns for each lane whether an observation of the end happens before its present access."""
        unique, inverse = np.unique(lanes, return_inverse=True)
        known = np.zeros(len(unique), bool)
        order = self._order
        observations = tuple(ending.observations())
        for seen in observations:
            known |= np.isin(unique, seen.lanes)
        for seen in observations:
            for access in order.packed_at(seen.lanes, seen.stamp).tolist():
                rest = np.flatnonzero(~known)
                if not rest.size:
                    return known[inverse]
                known[rest] = order.happened_before(unique[rest], np.full(len(rest), access))
        return known[inverse]


@dataclass(frozen=True, slots=True)
class _ProxyFence:
    """Proxy fences of some lanes in one instruction.

    Attributes:
        space: as `operations.NoOperation.proxy`.
        fenced: True for the lanes, by lane.
        first: by block slot, one of them, or -1.
        blocks, warps: stamps up to which the threads of a block or warp knew each other's accesses.
    """

    stamp: int
    space: str
    fenced: Array
    first: Array
    blocks: Array
    warps: Array


class ProxyFences:
    """Proxy fences of a batch, between accesses of the generic proxy and the async proxy."""

    def __init__(self, order: Order, lanes: Lanes) -> None:
        self._order = order
        self._lanes = lanes
        self._fences: list[_ProxyFence] = []
        self._forgotten = 0

    def begin(self) -> None:
        """Starts a batch."""
        self._fences.clear()
        self._forgotten = self._order.start

    def fence(self, lanes: Array, space: str) -> None:
        """Lanes execute a proxy fence."""
        order = self._order
        fenced = np.zeros(self._lanes.count, bool)
        fenced[lanes] = True
        first = np.full(self._lanes.blocks, -1)
        first[self._lanes.slot[lanes[::-1]]] = lanes[::-1]
        self._fences.append(_ProxyFence(order.tick(), space, fenced, first, *order.known_now()))
        if len(self._fences) > _MOST_FENCES:
            self._forgotten = self._fences.pop(0).stamp

    def crossed(self, lanes: Array, others: Array, space: str) -> Array:
        """Returns for each lane's bulk copy or product whether a proxy fence separates it from an earlier generic write.

        The write is known to happen before it. Writes of other blocks are taken to be fenced if any fence came
        after them.
        """
        order = self._order
        stamps = order.stamps_of(others)
        found = stamps < self._forgotten
        same_block = order.same_block(lanes, others)
        writers = np.where(same_block, order.lanes_beside(lanes, others), lanes)
        slots = self._lanes.slot.take(lanes)
        for fence in reversed(self._fences):
            rest = np.flatnonzero(~found & (stamps < fence.stamp))
            if not rest.size:
                break
            if fence.space not in {"generic", space}:
                continue
            mine, theirs = lanes[rest], writers[rest]
            known = stamps[rest] < fence.blocks[slots[rest]]
            own_warp = theirs >> 5 == mine >> 5
            known |= own_warp & (stamps[rest] < fence.warps[mine >> 5])
            known |= order.known_in_parts(mine, others[rest])
            passed = fence.fenced[mine] & (known | (theirs == mine)) | ~same_block[rest]
            # The fence of the writer, or of a third thread, must itself happen before the copy.
            for through, before in ((theirs, fence.fenced[theirs]), (fence.first[slots[rest]], known)):
                asked = np.flatnonzero(~passed & before & (through >= 0))
                if asked.size:
                    accesses = order.packed_at(through[asked], fence.stamp)
                    passed[asked] = order.happened_before(mine[asked], accesses)
            found[rest] |= passed
        return found
