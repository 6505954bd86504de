"""Monitors a launch's accesses for races and reads of unwritten memory.

Bytes that a `wgmma.mma_async` may still read must not be written: a write is ordered if some thread of the warpgroup has
waited for the product's group (`wgmma.wait_group`), and the wait happens before the write (PTX ISA 8.7,
wgmma.wait_group). The fence that a store and a product need between them is checked with those of bulk copies (`races`,
`async_proxy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kernelmate.backends.emulator.access_history import AccessHistory
from kernelmate.backends.emulator.findings import Race, at_line, plural
from kernelmate.backends.emulator.happens_before import NEVER, STAMP_SHIFT, Order
from kernelmate.backends.emulator.lanes import WARPGROUP
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction, Windowed
from kernelmate.backends.emulator.memory import Buffer
from kernelmate.backends.emulator.races import Access, RaceDetector, Region
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.visibility import MOST_EVENTS
from kernelmate.records import FindingCode

_CHUNK_SHIFT = 4
"""Products read whole chunks of 16 bytes, as `warpgroups` reads them."""


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

    def note(self, site: MemoryInstruction, lanes: Array, places: Array) -> None:
        """Records reads of chunks at some bytes of all blocks' shared memory, by the warpgroups of `lanes`."""
        self.any = True
        warpgroups = self._machine.lanes.warpgroup[lanes]
        at = warpgroups % self._each, places >> _CHUNK_SHIFT
        self._groups[at] = self._order.products.open_group[warpgroups]
        self._sites[at] = site.number

    def check_write(self, site: MemoryInstruction, lanes: Array, places: Array) -> None:
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
        """Returns, for each lane, True if it is ordered after the action of one of some threads of a warpgroup at a stamp."""
        waiting = self._machine.lanes.warpgroups[warpgroups][:, threads]
        there = waiting >= 0
        times = there.sum(axis=1)
        waits = self._order.packed_at(waiting[there], np.repeat(stamps, times))
        found = np.zeros(waiting.shape, bool)
        found[there] = self._order.happened_before(np.repeat(lanes, times), waits)
        return np.asarray(found.any(axis=1))

    def _report_write(
        self, site: MemoryInstruction, product: MemoryInstruction, lane: int, place: int, times: int
    ) -> None:
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


_GLOBAL_SHADOW_BYTES = 96 << 20
"""Maximum bytes of all buffers' shadows; buffers that need more are monitored in part."""


def _in_turn(machine: Machine, site: MemoryInstruction, lanes: Array, offsets: Array) -> tuple[Array, Array]:
    """Returns lanes and offsets: sorted by order of execution for an atomic, unchanged for other accesses."""
    if site.action != "atomic" or machine.contention is None:
        return lanes, offsets
    turns = machine.contention.order(site.number, lanes)
    return lanes[turns], offsets[turns]


def _synchronise(order: Order, site: MemoryInstruction, lanes: Array, keys: Sequence[int]) -> None:
    """Lets a strong access publish and learn."""
    visibility = order.visibility
    if visibility is None or not site.scope:
        return
    if site.action == "atomic" and not site.returns:
        visibility.update(lanes, keys, scope=site.scope, releases=site.releases)
        return
    visibility.strong_access(
        lanes,
        keys,
        scope=site.scope,
        reads=site.action != "store",
        writes=site.action != "load",
        acquires=site.acquires,
        releases=site.releases,
    )


class GlobalWatch:
    """Monitors writable buffers; read-only ones cannot race."""

    def __init__(self, machine: Machine, order: Order) -> None:
        self._machine = machine
        self._order = order
        self._detector = RaceDetector(machine, order)
        self._watched: dict[int, tuple[AccessHistory, Region]] = {}
        self._cached: dict[int, Array] = {}
        self._writable_bytes = sum(buffer.data.size for buffer in machine.memory.buffers if buffer.writable)

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Called when lanes access one buffer at these addresses, before a store takes effect."""
        buffer = self._machine.memory.at(int(offsets[0]))
        assert buffer is not None
        if not buffer.writable:
            return
        lanes, offsets = _in_turn(self._machine, site, lanes, offsets)
        within = offsets - np.uint64(buffer.origin)
        ledger, region = self._watch(buffer, site)
        access = Access(ledger, self._order, lanes, within, site.size, settled=1, oldest=1)
        if site.action == "load":
            if site.read_only:
                self._look_for_stale(buffer, site, within, ledger.writes.take(access.cells) > 0, access.lanes)
            self._detector.read(region, ledger, site, access)
        else:
            if buffer.origin in self._cached:
                known = self._cached[buffer.origin][within]
                self._look_for_stale(buffer, site, within, known, lanes)
            self._detector.write(region, ledger, site, access, values)
        if site.synchronises and self._order.visibility is not None:
            _synchronise(self._order, site, lanes, offsets.tolist())

    def _look_for_stale(
        self, buffer: Buffer, site: MemoryInstruction, within: Array, stale: Array, lanes: Array
    ) -> None:
        """Reports loads through the read-only cache of data that this launch writes, before or after them."""
        if site.action == "load":
            cached = self._cached.setdefault(buffer.origin, np.zeros(buffer.data.size + 16, bool))
            for step in range(site.size):
                cached[within + np.uint64(step)] = True
        if not stale.any():
            return
        offset = int(within[0]) - buffer.lead
        self._machine.findings.report(
            FindingCode.GLOBAL_RACE,
            site.position,
            lanes[stale],
            lambda: (
                f"{'loads' if site.action == 'load' else 'writes'} byte {offset} of {buffer.name}, which is loaded through the "
                "read-only cache (__ldg, const __restrict__) and written in one launch: such loads are undefined; load it plainly"
            ),
            buffer=buffer.name,
            offset=offset,
        )

    def unwatched(self) -> tuple[str, ...]:
        """Returns the parts of memory that are not watched, as text."""
        parts = [
            f"races were looked for in one of every {ledger.every} pages of {buffer.name} only, whose "
            f"{buffer.size >> 20} MiB are more than are watched as a whole"
            for buffer in self._machine.memory.buffers
            if (ledger := self._ledger_of(buffer)) is not None and not ledger.covers_all
        ]
        if self._order.transfers.exhausted:
            parts.append(
                "of very many bulk copies in one batch of blocks, later ones were assumed to have been waited for"
            )
        if self._order.visibility is not None and self._order.visibility.exhausted:
            parts.append(
                f"after the first {MOST_EVENTS} releases and acquires of memory, threads were taken to have synchronised"
            )
        return tuple(parts)

    def _ledger_of(self, buffer: Buffer) -> AccessHistory | None:
        found = self._watched.get(buffer.origin)
        return None if found is None else found[0]

    def _watch(self, buffer: Buffer, site: MemoryInstruction) -> tuple[AccessHistory, Region]:
        found = self._watched.get(buffer.origin)
        if found is None:
            share = _GLOBAL_SHADOW_BYTES * buffer.data.size // self._writable_bytes
            ledger = AccessHistory(buffer.data.size, min(16, site.size), share)
            region = Region(FindingCode.GLOBAL_RACE, "global", buffer.data, _place_in(buffer))
            found = self._watched[buffer.origin] = (ledger, region)
        if site.number not in found[1].sites:
            found[1].add(site, site.scope)
        return found


class SharedWatch:
    """Monitors the shared memory of all blocks of a batch.

    Args:
        waits: True if the kernel polls memory in a loop, so that `volatile` is its means of communication.
    """

    def __init__(self, machine: Machine, order: Order, *, waits: bool) -> None:
        self._machine = machine
        self._order = order
        self._window: Windowed = machine.shared
        self._waits = waits
        self._detector = RaceDetector(machine, order)
        self._ledger: AccessHistory | None = None
        self._region = Region(FindingCode.SHARED_RACE, "shared", self._window.data, self._place)
        self._complete = False
        self._products = ProductReads(machine, order, self._region) if machine.register_order is not None else None

    def begin(self) -> None:
        """Starts a batch: fresh blocks."""
        self._complete = False
        if self._products is not None:
            self._products.begin()

    def barrier(self, blocks: Array) -> None:
        """Called when blocks pass a barrier, to check for remaining unwritten memory."""
        del blocks
        ledger = self._ledger
        if ledger is not None and not self._complete and ledger.last_write >= self._order.start:
            used = self._used_cells(ledger)
            self._complete = bool((used >= self._oldest).all())

    def _used_cells(self, ledger: AccessHistory) -> Array:
        cells = ledger.writes[: len(self._window.data) - 16 >> ledger.shift]
        return cells.reshape(-1, self._window.stride >> ledger.shift)[:, : self._window.limit >> ledger.shift]

    @property
    def _oldest(self) -> int:
        return self._order.start << STAMP_SHIFT

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Called when lanes access shared memory, before a store takes effect."""
        order, ledger = self._order, self._ledger
        if ledger is None:
            ledger = self._ledger = AccessHistory(self._window.data.size, min(site.size, 16))
        if site.number not in self._region.sites:
            self._region.add(site, 0 if site.volatile and not self._waits else site.scope)
        lanes, offsets = _in_turn(self._machine, site, lanes, offsets)
        absolute = self._window.locate(lanes, offsets)
        access = Access(
            ledger, order, lanes, absolute, site.size, settled=order.known_by_all, oldest=order.start << STAMP_SHIFT
        )
        if site.action != "store" and not site.unused and not self._complete:
            self._look_for_empty(ledger, site, access)
        if site.action == "load":
            self._detector.read(self._region, ledger, site, access)
        else:
            self._detector.write(self._region, ledger, site, access, values)
        if self._products is not None:
            self._of_products(self._products, site, lanes, absolute)
        if site.synchronises and order.visibility is not None:
            slots, within = np.divmod(absolute, self._window.stride)
            blocks = self._machine.lanes.block.take(slots * self._machine.lanes.width)
            _synchronise(order, site, lanes, (-1 - ((blocks << 32) + within)).tolist())

    @staticmethod
    def _of_products(products: ProductReads, site: MemoryInstruction, lanes: Array, places: Array) -> None:
        """Records reads by `wgmma`, and checks writes to what it reads."""
        if site.proxy == "product":
            products.note(site, lanes, places)
        elif site.action != "load" and products.any:
            products.check_write(site, lanes, places)

    def _look_for_empty(self, ledger: AccessHistory, site: MemoryInstruction, access: Access) -> None:
        """Reports reads of shared memory that no thread of the block has written."""
        empty = ledger.writes.take(access.cells) < access.oldest
        if not empty.any():
            return
        lanes = access.lanes[empty]
        name, offset, where = self._place(int(ledger.offsets_of(access.cells[empty][:1])[0]))
        self._machine.findings.report(
            FindingCode.UNINITIALISED_SHARED,
            site.position,
            lanes,
            lambda: f"reads {where}, which no thread has written",
            buffer=name,
            offset=offset,
        )

    def _place(self, offset: int) -> tuple[str, int, str]:
        slot, within = divmod(offset, self._window.stride)
        name = self._window.names(within) or "shared memory"
        lanes = self._machine.lanes
        owner = ""
        if lanes.cluster_blocks > 1:
            owner = f" of block {lanes.place_of(int(lanes.block[slot * lanes.width]))}"
        return name, within, f"{name} (byte {within} of shared memory{owner})"


def _place_in(buffer: Buffer) -> Callable[[int], tuple[str, int, str]]:
    def place(offset: int) -> tuple[str, int, str]:
        within = offset - buffer.lead
        return buffer.name, within, f"byte {within} of {buffer.name}"

    return place


class LocalWatch:
    """Monitors local memory for reads of unwritten bytes.

    Args:
        passed: offsets and sizes of call parameters, since results of host functions are not stored by the thread.
    """

    def __init__(self, machine: Machine, passed: Iterable[tuple[int, int]]) -> None:
        self._passed = tuple(passed)
        self._machine = machine
        self._window = machine.local
        self._written = np.zeros(machine.local.data.size, bool)
        self._bases = machine.local.bases(1)

    def begin(self) -> None:
        """Starts a batch: fresh threads."""
        self._written.fill(False)
        for offset, size in self._passed:
            rows = self._written[: len(self._written) - 16].reshape(-1, self._window.stride)
            rows[:, offset : offset + size] = True

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Checks an access of some lanes to local memory."""
        del values
        absolute = offsets.astype(np.int64) + self._bases[lanes]
        if site.action == "load":
            # Copying a structure may include its padding; only completely unknown values count against the thread.
            known = self._written.take(absolute[:, None] + np.arange(site.size)).any(axis=1)
            if not known.all():
                offset = int(offsets[~known][0])
                name = self._window.names(offset) or "local memory"
                self._machine.findings.report(
                    FindingCode.UNINITIALISED_LOCAL,
                    site.position,
                    lanes[~known],
                    lambda: (
                        f"reads {plural(site.size, 'byte')} at byte {offset} of the thread's own memory ({name}), "
                        "which the thread has not written"
                    ),
                    buffer=name,
                    offset=offset,
                )
            return
        for step in range(site.size):
            self._written[absolute + step] = True
