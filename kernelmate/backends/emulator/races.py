"""Race detection: conflicting unordered accesses in shared and global memory.

Two accesses to the same byte by different threads, at least one of them a write, are a race unless one happens before
the other (`happens_before`), or both are strong (atomic, relaxed, volatile) with scopes that include each other's thread: PTX
ISA, memory consistency model. Two cases deviate from the model. A store of the present value changes nothing in any
order: it is a note, not an error. And `volatile` in shared memory is how code from before Volta made the lanes of a
warp to wait for each other, which they do not: it counts as strong only in kernels that wait for memory in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from kernelmate.backends.emulator.access_history import AccessHistory
from kernelmate.backends.emulator.findings import Race, at_line
from kernelmate.backends.emulator.happens_before import NEVER, NUMBER_MASK, SCOPES, STAMP_SHIFT, Order
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode

_SAME = "both leave the same value there, so that the order does not show"
_GUESS = "the read is a guess that an atomic of the same thread checks again, as in a loop of compare-and-swap"
_UNUSED = "nothing uses what is read"
"""Reasons for which a race is reported as a note only."""

_DOES = {"load": "reads", "store": "writes", "atomic": "atomically updates"}
_DID = {"load": "has read", "store": "has written", "atomic": "has atomically updated"}


@dataclass(frozen=True, slots=True)
class Region:
    """A memory region with one ledger: a buffer, or the shared memory of all blocks of a batch.

    Attributes:
        code: finding code of its races.
        space: its state space.
        data: its bytes.
        place: maps an offset in `data` to the variable's name, the offset in it, and a description.
        sites: instructions that have accessed it, by number.
        strengths: the scope of each one's accesses; 0 for weak.
        copies: those that bulk copies make.
    """

    code: FindingCode
    space: str
    data: Array
    place: Callable[[int], tuple[str, int, str]]
    sites: dict[int, MemoryInstruction] = field(default_factory=dict)
    strengths: dict[int, int] = field(default_factory=dict)
    copies: list[int] = field(default_factory=list)

    def add(self, site: MemoryInstruction, strength: int) -> None:
        """Adds an instruction that accesses the region."""
        self.sites[site.number] = site
        self.strengths[site.number] = strength
        if site.proxy == "copy":
            self.copies.append(site.number)


class Access:
    """Accesses of lanes in one instruction, cell by cell.

    Attributes:
        lanes, packed, cells: the lanes, their packed accesses, and the accessed cells.
        settled: accesses before this stamp are ordered.
        oldest: packed values below this mean no access.
    """

    def __init__(
        self, ledger: AccessHistory, order: Order, lanes: Array, offsets: Array, size: int, *, settled: int, oldest: int
    ) -> None:  # fmt: skip
        self._offsets = offsets
        self.cells, self._owners = ledger.cells(offsets, size)
        packed = order.packed(lanes)
        owners = self._owners
        self.lanes = lanes if owners is None else lanes.take(owners)
        self.packed = packed if owners is None else packed.take(owners)
        self.settled = settled
        self.oldest = oldest

    def bytes_of(self, values: Array, chosen: Array, offsets: Array, size: int) -> Array:
        """Returns rows of bytes stored to some cells, which begin at `offsets`."""
        data = np.ascontiguousarray(values)
        raw = data.view(np.uint8).reshape(len(data), -1)
        owners = chosen if self._owners is None else self._owners[chosen]
        within = offsets - self._offsets[owners].astype(np.int64)
        return raw[owners[:, None], within[:, None] + np.arange(size)]


@dataclass(frozen=True, slots=True)
class _Clash:
    """Cells of an access that are in conflict: their positions in the access, and the accesses that they conflict with.

    `unfenced` is True if all that is missing is a proxy fence.
    """

    chosen: Array
    others: Array
    sites: Array
    unfenced: bool = False


class RaceDetector:
    """Detects races and reports them."""

    def __init__(self, machine: Machine, order: Order) -> None:
        self._machine = machine
        self._order = order

    def read(self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access) -> None:
        """Checks a read of some lanes against the last writes; `ProductReads` keeps those of products, which last."""
        if ledger.last_write >= access.settled or ledger.groups is not None or region.copies:
            self._against(region, ledger, site, access, (ledger.writes, ledger.write_sites), None)
        if site.proxy in {"copy", "product"}:
            self._across_proxies(region, ledger, site, access)
        if site.proxy != "product":
            ledger.note_read(access.cells, access.packed, site.number, self._order.now, access.settled)

    def write(
        self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access, values: Array | None
    ) -> None:
        """Checks writes against the last writes and reads, and against each other."""
        stored = values if site.action == "store" else None
        if ledger.last_write >= access.settled or ledger.groups is not None or region.copies:
            self._against(region, ledger, site, access, (ledger.writes, ledger.write_sites), stored)
        if site.proxy == "copy":
            self._across_proxies(region, ledger, site, access)
        if ledger.reads is not None and (ledger.last_read >= access.settled or region.copies):
            self._against(region, ledger, site, access, (ledger.reads, ledger.read_sites), stored)
            self._against(region, ledger, site, access, (ledger.other_reads, ledger.other_read_sites), stored)
        groups = self._order.copies.open_group.take(access.lanes) if site.asynchronous else None
        ledger.note_write(access.cells, access.packed, site.number, self._order.now, groups)
        if stored is not None and not region.strengths[site.number]:
            self._among_themselves(region, ledger, site, access, stored)

    def _against(
        self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access, table: tuple[Array, Array], stored: Array | None
    ) -> None:  # fmt: skip
        order = self._order
        others = table[0].take(access.cells)
        there = others >= access.oldest
        under_way: Array | None = None
        if ledger.groups is not None and table[0] is ledger.writes:
            others, under_way = self._as_waited_for(region, ledger, access, others, table[1], there)
        copied = self._copied(region, site, access, others, table[1]) & there
        foreign = ~order.same_thread(others, access.packed)
        suspect = np.flatnonzero(there & (foreign if under_way is None else foreign | under_way) | copied)
        if not suspect.size:
            return
        ordered = order.happened_before(access.lanes[suspect], others[suspect])
        if under_way is not None:
            ordered &= ~under_way[suspect]
        by_copies = np.flatnonzero(copied[suspect])
        if by_copies.size:
            chosen = suspect[by_copies]
            reads = table[0] is not ledger.writes
            ordered[by_copies] = order.transfers.ended(access.lanes[chosen], others[chosen], reads=reads)
        suspect = suspect[~ordered]
        if not suspect.size:
            return
        sites = table[1].take(access.cells[suspect])
        weak = ~self._both_strong(region, site, access.lanes[suspect], others[suspect], sites)
        suspect, sites = suspect[weak], sites[weak]
        if suspect.size:
            self._report(region, ledger, site, access, _Clash(suspect, others[suspect], sites), stored)

    @staticmethod
    def _copied(region: Region, site: MemoryInstruction, access: Access, others: Array, sites: Array) -> Array:
        """Returns a mask of the other accesses made by bulk copies, except the copy of this access."""
        if not region.copies:
            return np.zeros(len(others), bool)
        copied = np.isin(sites.take(access.cells), region.copies)
        return np.asarray(copied & (others != access.packed) if site.proxy == "copy" else copied)

    def _across_proxies(self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access) -> None:
        """Checks that a bulk copy or product is fenced from the generic writes of what it reads or overwrites.

        Copies of `cp.async` need no fence before products, since CUTLASS's pipelines with `cp.async` have none.
        """
        order = self._order
        others, sites = ledger.writes.take(access.cells), ledger.write_sites.take(access.cells)
        spared = [n for n, one in region.sites.items() if one.proxy or (site.proxy == "product" and one.asynchronous)]
        chosen = np.flatnonzero((others >= access.oldest) & ~np.isin(sites, spared))
        if not chosen.size:
            return
        chosen = chosen[order.happened_before(access.lanes[chosen], others[chosen])]
        chosen = chosen[~order.proxies.crossed(access.lanes[chosen], others[chosen], region.space)]
        if chosen.size:
            clash = _Clash(chosen, others[chosen], sites[chosen], unfenced=True)
            self._tell(region, ledger, site, access, clash, np.zeros(len(chosen), bool))

    def _as_waited_for(
        self, region: Region, ledger: AccessHistory, access: Access, others: Array, sites: Array, there: Array
    ) -> tuple[Array, Array]:  # fmt: skip
        """Replaces the stamps of asynchronous copies by those of their wait; returns which ones are still pending."""
        assert ledger.groups is not None
        numbers = [number for number, site in region.sites.items() if site.asynchronous]
        copies = np.flatnonzero(np.isin(sites.take(access.cells), numbers) & there)
        under_way = np.zeros(len(others), bool)
        if copies.size:
            writers = self._order.lanes_beside(access.lanes[copies], others[copies])
            done = self._order.copies.done_at(writers, ledger.groups.take(access.cells[copies]))
            others = others.copy()
            others[copies] = (others[copies] & NUMBER_MASK) | (done << STAMP_SHIFT)
            under_way[copies] = done == NEVER
        return others, under_way

    def _both_strong(self, region: Region, site: MemoryInstruction, lanes: Array, others: Array, sites: Array) -> Array:
        """Returns for each pair of accesses whether it is morally strong, and therefore not a race."""
        mine = region.strengths[site.number]
        if not mine:
            return np.zeros(len(lanes), bool)
        numbers, inverse = np.unique(sites, return_inverse=True)
        common = np.array([min(mine, region.strengths[int(number)]) for number in numbers])[inverse]
        found = (common >= SCOPES["gpu"]) | ((common > 0) & self._order.same_block(lanes, others))
        narrow = common == SCOPES["cluster"]
        if narrow.any():
            found |= narrow & self._order.same_cluster(lanes, others)
        return np.asarray(found)

    def _among_themselves(
        self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access, stored: Array
    ) -> None:
        """Checks for lanes that store to the same address in one instruction."""
        winners = ledger.writes.take(access.cells)
        lost = np.flatnonzero(winners != access.packed)
        if not lost.size:
            return
        places, last = np.unique(access.cells[::-1], return_index=True)
        partners = len(access.cells) - 1 - last[np.searchsorted(places, access.cells[lost])]
        offsets = ledger.offsets_of(access.cells[lost])
        mine = access.bytes_of(stored, lost, offsets, ledger.granule)
        theirs = access.bytes_of(stored, partners, offsets, ledger.granule)
        same = (mine == theirs).all(axis=1)
        sites = np.full(len(lost), site.number)
        self._tell(region, ledger, site, access, _Clash(lost, winners[lost], sites), same)

    def _report(
        self,
        region: Region,
        ledger: AccessHistory,
        site: MemoryInstruction,
        access: Access,
        clash: _Clash,
        stored: Array | None,
    ) -> None:
        same = np.zeros(len(clash.chosen), bool)
        if stored is not None:
            offsets = ledger.offsets_of(access.cells[clash.chosen])
            present = region.data[offsets[:, None] + np.arange(ledger.granule)]
            same = (present == access.bytes_of(stored, clash.chosen, offsets, ledger.granule)).all(axis=1)
        self._tell(region, ledger, site, access, clash, same)

    def _tell(
        self, region: Region, ledger: AccessHistory, site: MemoryInstruction, access: Access, clash: _Clash, same: Array
    ) -> None:
        """Reports the first race that changes a value, and the first of each kind that does not."""
        if self._machine.replicated and region.code == FindingCode.SHARED_RACE:
            kept = clash.sites != site.number
            clash = replace(clash, chosen=clash.chosen[kept], others=clash.others[kept], sites=clash.sites[kept])
            same = same[kept]
        guess = self._guesses(region, site, clash.sites)
        unused = self._unused(region, site, clash.sites)
        told = (
            (~same & ~guess & ~unused, ""),
            (same & ~guess & ~unused, _SAME),
            (guess, _GUESS),
            (unused & ~guess, _UNUSED),
        )
        for chosen, excuse in told:
            if not chosen.any():
                continue
            at = int(np.flatnonzero(chosen)[0])
            position = int(clash.chosen[at])
            earlier = region.sites[int(clash.sites[at])]
            offset = int(ledger.offsets_of(access.cells[position : position + 1])[0])
            name, within, where = region.place(offset)
            mine = self._order.thread_of(int(access.packed[position]))
            theirs = self._order.thread_of(int(clash.others[at]))
            race = Race(
                region.code,
                "note" if excuse else "error",
                (site.position, earlier.position),
                name,
                within,
                (mine[1], theirs[1]),
                _sentence(self._machine, (site, mine), (earlier, theirs), where, excuse, unfenced=clash.unfenced),
                int(np.count_nonzero(chosen)),
            )
            self._machine.findings.races.report(race)

    @staticmethod
    def _unused(region: Region, site: MemoryInstruction, others: Array) -> Array:
        """Returns a mask of the other accesses where they, or else this access, only read unused values."""
        if site.unused and site.action == "load":
            return np.ones(len(others), bool)
        idle = [number for number, one in region.sites.items() if one.unused and one.action == "load"]
        return np.isin(others, idle) if idle else np.zeros(len(others), bool)

    @staticmethod
    def _guesses(region: Region, site: MemoryInstruction, others: Array) -> Array:
        """Returns which of the others form, with this access, an atomic and its speculative read."""
        numbers, inverse = np.unique(others, return_inverse=True)
        found = []
        for number in numbers:
            pair = (site, region.sites[int(number)])
            found.append(any(one.guess for one in pair) and any(one.action == "atomic" for one in pair))
        return np.asarray(np.array(found, bool)[inverse])


_Accessor = tuple[MemoryInstruction, tuple[int, int]]
"""An instruction, and the block and thread that executes it."""


def _sentence(machine: Machine, later: _Accessor, before: _Accessor, where: str, excuse: str, *, unfenced: bool) -> str:
    (site, mine), (earlier, theirs) = later, before
    lanes = machine.lanes
    mine_in, theirs_in = lanes.place_of(mine[0]), lanes.place_of(theirs[0])
    together = mine[0] == theirs[0]
    who = f"{_by(site)}thread {mine[1]} of block {mine_in} {_DOES[site.action]} {where}"
    other = _by(earlier) + (f"thread {theirs[1]}" if together else f"thread {theirs[1]} of block {theirs_in}")
    if earlier is site:
        did = f"as {other} does in the same instruction"
    else:
        did = f"which {other} {_DID[earlier.action]}{at_line(earlier.position)}"
    if excuse:
        return f"{who}, {did}; {excuse}"
    if unfenced:
        return f"{who}, {did}, and no proxy fence is between the two; {_FENCE}"
    clusters = None if machine.order is None else machine.order.clusters
    in_cluster = clusters is not None and clusters.near(mine[0], theirs[0])
    return f"{who}, {did}, and nothing orders the two; {_remedy(site, earlier, mine, theirs, in_cluster)}"


_FENCE = "put fence.proxy.async (cuda::ptx::fence_proxy_async) after the write, before the barrier that orders the two"


def _by(site: MemoryInstruction) -> str:
    return {"copy": "the bulk copy of ", "product": "the wgmma.mma_async of "}.get(site.proxy, "")


def _remedy(
    site: MemoryInstruction,
    earlier: MemoryInstruction,
    mine: tuple[int, int],
    theirs: tuple[int, int],
    in_cluster: bool,
) -> str:
    if earlier.proxy == "copy":
        if earlier.action == "load":
            return "wait until the copy has read it (cp.async.bulk.wait_group.read), then let a barrier tell the other threads"
        return (
            "wait for the copy first: for its mbarrier (mbarrier.try_wait), or for its group (cp.async.bulk.wait_group)"
        )
    if earlier.asynchronous:
        return "wait for the copy (cp.async.wait_group), then let a barrier tell the other threads"
    if (site.action == "atomic") != (earlier.action == "atomic") and mine[0] != theirs[0]:
        return "an atomic does not order the accesses around it, and an ordinary access to the same bytes is not atomic"
    if site.action == earlier.action == "atomic":
        return "atomics of block scope are not atomic for threads of other blocks"
    if earlier is site and site.action == "store":
        return "let one thread write, or use an atomic"
    if mine[0] != theirs[0] and in_cluster:
        return "put a barrier of the cluster between (cluster.sync())"
    if mine[0] != theirs[0]:
        return "blocks of one launch have no order: use atomics, a fence and a flag, or a second launch"
    if mine[1] >> 5 == theirs[1] >> 5:
        return "lanes of a warp do not wait for each other: put __syncwarp() or a barrier between"
    return "put __syncthreads() between"
