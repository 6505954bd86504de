"""Shadow memory of `accesses`, and the same checks for accesses made by NumPy operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.jit.layout import Stamp
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.matrix_operations import WARPGROUP_OPERATIONS, FragmentLoad, FragmentStore
from kernelmate.backends.emulator.memory import Buffer
from kernelmate.backends.emulator.operations import (
    WARP_OPERATIONS,
    ActiveMask,
    Assert,
    AsyncCopy,
    AsyncGroup,
    Atomic,
    Barrier,
    Branch,
    BranchTable,
    Compute,
    Exit,
    Load,
    NoOperation,
    Print,
    ReadClock,
    Store,
    Trap,
)
from kernelmate.backends.emulator.types import SIZES, Array

MOST_SHADOW_BYTES = 320 << 20
"""Maximum bytes of stamps for global memory; launches with larger arrays use the exact checks."""
_KNOWN = (
    *WARP_OPERATIONS, ActiveMask, Assert, AsyncCopy, AsyncGroup, Atomic, Branch, BranchTable, Compute, Exit, Load, NoOperation, Print, ReadClock,
    Store, Trap,
)  # fmt: skip


class Suspicion(Exception):
    """The launch may contain an error: it must run again under the exact checks."""


def may_watch(decoded: DecodedKernel) -> bool:
    """Returns True if these checks support every operation of a kernel."""
    for step in decoded.steps:
        operation = step.operation
        if isinstance(operation, Barrier):
            if operation.mode == "arrive" or operation.count is not None or _is_register(operation.number):
                return False
        elif not isinstance(operation, _KNOWN) or isinstance(operation, WARPGROUP_OPERATIONS):
            return False
        if isinstance(operation, Atomic) and not {"cta", "cluster"}.isdisjoint(step.opcode.split(".")):
            # Atomic for some threads only; for others it is a race, which stamps cannot distinguish.
            return False
    return True


def _is_register(operand: Any) -> bool:
    return hasattr(operand, "negated")


def granule_shift(decoded: DecodedKernel, spaces: frozenset[str]) -> int:
    """Log2 of the bytes of the smallest element that is accessed in some state spaces."""
    sizes = [
        SIZES[step.operation.kind]
        for step in decoded.steps
        if isinstance(step.operation, Load | Store | Atomic | FragmentLoad | FragmentStore)
        and step.operation.space in spaces
    ]
    if "shared" in spaces:
        sizes += [step.operation.size for step in decoded.steps if isinstance(step.operation, AsyncCopy)]
    return min(sizes, default=4).bit_length() - 1


def fits(machine: Machine, shift: int) -> bool:
    """Returns True if the stamps of all writable arrays take an acceptable amount of memory, and block numbers fit.

    Global memory is checked in granules of 1 << shift bytes.
    """
    size = sum(buffer.data.size for buffer in machine.memory.buffers if buffer.writable)
    return size * 16 >> shift <= MOST_SHADOW_BYTES and machine.lanes.total_blocks < Stamp.MOST_BLOCKS


class StampWatch:
    """Stamps of one launch.

    Attributes:
        stamps: per warp, the stamp of its first lane.
        suspect: a NumPy operation's access was out of the ordinary.
    """

    def __init__(self, machine: Machine, shared_shift: int, global_shift: int) -> None:
        self._machine = machine
        self._shift = {"shared": shared_shift, "global": global_shift}
        lanes = machine.lanes
        self.stamps = np.zeros(lanes.warps, np.int64)
        self._time = np.zeros(lanes.blocks, np.int64)
        granules = (machine.shared.data.size >> shared_shift) + 1
        self.shared = (np.zeros(granules, np.int64), np.zeros(granules, np.int64))
        self.local_written = np.zeros(machine.local.data.size, np.uint8)
        self._buffers: dict[int, tuple[Array, Array]] = {}
        self._copies = _PendingCopies(lanes.count)
        self.suspect = False

    def attach(self) -> None:
        """Attaches the monitors to accesses by NumPy operations, and to barriers."""
        machine = self._machine
        machine.global_monitors.append(_GlobalSide(self))
        machine.shared.monitors.append(_SharedSide(self))
        machine.local.monitors.append(_LocalSide(self))
        machine.barrier_watchers.append(self.barrier)
        machine.copy_watchers.append(self.copy_group)

    def buffer(self, buffer: Buffer) -> tuple[Array, Array] | None:
        """Returns writers and readers of a buffer; None if it is read-only."""
        if not buffer.writable:
            return None
        found = self._buffers.get(buffer.origin)
        if found is None:
            size = (buffer.data.size >> self._shift["global"]) + 1
            found = self._buffers[buffer.origin] = (np.zeros(size, np.int64), np.zeros(size, np.int64))
        return found

    def begin_batch(self) -> None:
        """Clears stamps of the previous batch's blocks."""
        lanes = self._machine.lanes
        first = lanes.iota[::32]
        blocks = lanes.block[first]
        self._time.fill(0)
        self.stamps[:] = ((blocks + 1) << Stamp.BLOCK_SHIFT) | lanes.thread[first]
        self.local_written.fill(0)
        self._copies.begin()

    def barrier(self, blocks: Array) -> None:
        """Records that these block slots have passed a barrier."""
        self._time += blocks
        if int(self._time.max()) >= Stamp.MOST_TIMES:
            self.suspect = True
            return
        self.stamps += np.repeat(blocks.astype(np.int64) << Stamp.TIME_SHIFT, self._machine.lanes.width // 32)
        for lanes, places in self._copies.pending():
            self._forbid(lanes, places)

    def copy_group(self, lanes: Array, operation: AsyncGroup) -> None:
        """Records that lanes close or await groups of asynchronous copies; awaited ones count as written now."""
        if operation.commits:
            self._copies.commit(lanes)
        if operation.left is None:
            return
        writers, readers = self.shared
        for writing, places in self._copies.awaited(lanes, operation.left):
            writers[places] = self._own(writing)
            readers[places] = 0

    def _own(self, lanes: Array) -> Array:
        """Returns the lanes' stamps."""
        return np.asarray(self.stamps[lanes >> 5] | (lanes & 31))

    def _forbid(self, lanes: Array, places: Array) -> None:
        """Gives granules stamps that clash with every access of the block until its next barrier.

        To a load they are unwritten; to a store, read by several threads just now.
        """
        writers, readers = self.shared
        writers[places] = Stamp.BLOCK
        readers[places] = self._own(lanes) | np.int64(-(1 << 63))

    def _copied(self, places: Array, lanes: Array) -> None:
        """Checks a copy's store like any other; nothing orders it until it is awaited."""
        self._plain("store", places, self._own(lanes), self.shared, anywhere=False)
        self._forbid(lanes, places)
        self._copies.add(lanes, places)

    # --------------------------------------------------------------------------------- accesses by NumPy

    def see(
        self,
        site: MemoryInstruction,
        lanes: Array,
        first: Array,
        stamps: tuple[Array, Array],
        shift: int,
        *,
        anywhere: bool,
    ) -> None:
        """Checks accesses of some lanes to granules from `first` on."""
        me = self._own(lanes)
        for granule in range(max(1, site.size >> shift)):
            places = first + granule
            if site.asynchronous:
                self._copied(places, lanes)
            elif site.action == "atomic":
                self._atomic(places, me, stamps, anywhere)
            else:
                self._plain(site.action, places, me, stamps, anywhere)

    def _clash(self, stamps: Array, me: Array, anywhere: bool) -> Array:
        difference = stamps ^ me
        same_time = (difference & (Stamp.BLOCK | Stamp.TIME)) == 0
        not_alone = ((difference & Stamp.THREAD) != 0) | (stamps < 0)
        unordered = same_time & not_alone
        if anywhere:
            unordered |= (difference & Stamp.BLOCK) != 0
        return np.asarray((stamps != 0) & unordered)

    def _empty(self, writers: Array, me: Array) -> bool:
        return bool(((writers == 0) | (((writers ^ me) & Stamp.BLOCK) != 0)).any())

    def _plain(self, action: str, places: Array, me: Array, stamps: tuple[Array, Array], anywhere: bool) -> None:
        writers, readers = stamps
        wrong = self._clash(writers[places], me, anywhere).any()
        if action == "store":
            wrong |= self._clash(readers[places], me, anywhere).any() or len(np.unique(places)) != len(places)
            writers[places] = me
        else:
            wrong |= not anywhere and self._empty(writers[places], me)
            # One of several readers suffices: a later write of this block before a barrier conflicts with it.
            readers[places] = np.int64(-1) if anywhere else me | np.int64(-(1 << 63))
        self.suspect |= bool(wrong)

    def _atomic(self, places: Array, me: Array, stamps: tuple[Array, Array], anywhere: bool) -> None:
        """Atomic operations do not conflict with each other, and leave a mark that conflicts with plain accesses."""
        writers, readers = stamps
        old = writers[places]
        plain = old >= 0
        wrong = (self._clash(old, me, anywhere) & plain).any() or self._clash(readers[places], me, anywhere).any()
        if not anywhere:
            wrong |= self._empty(old, me)
        elsewhere = (old < 0) & (((old ^ me) & Stamp.BLOCK) != 0)
        mark = me | np.int64(-(1 << 63))
        # All bits set if several blocks or, within this instruction, several warps access one place.
        writers[places] = np.where(elsewhere, np.int64(-1), mark) if anywhere else mark
        if anywhere:
            mixed = ((writers[places] ^ mark) & Stamp.BLOCK) != 0
            writers[places[mixed]] = -1
        self.suspect |= bool(wrong)


class _PendingCopies:
    """Granules of shared memory that asynchronous copies write, by the group of the lane that they are in.

    Groups are numbered per lane in the order in which they are committed.
    """

    def __init__(self, count: int) -> None:
        self._open_group = np.zeros(count, np.int64)
        self._finished = np.zeros(count, np.int64)
        self._entries: list[tuple[Array, Array, Array]] = []

    def begin(self) -> None:
        """Starts a batch."""
        self._open_group.fill(0)
        self._finished.fill(0)
        self._entries.clear()

    def add(self, lanes: Array, places: Array) -> None:
        """Records a copy of each lane to a granule, in its open group."""
        self._entries.append((lanes.copy(), self._open_group[lanes], places.copy()))

    def commit(self, lanes: Array) -> None:
        """Closes the open group of each lane."""
        self._open_group[lanes] += 1

    def pending(self) -> list[tuple[Array, Array]]:
        """Returns lanes and granules of all copies that were not awaited."""
        return [(lanes, places) for lanes, _, places in self._entries]

    def awaited(self, lanes: Array, left: int) -> list[tuple[Array, Array]]:
        """Removes and returns the copies that are complete when at most `left` groups of these lanes are pending."""
        self._finished[lanes] = np.maximum(self._finished[lanes], self._open_group[lanes] - left)
        done: list[tuple[Array, Array]] = []
        kept: list[tuple[Array, Array, Array]] = []
        for writing, groups, places in self._entries:
            complete = groups < self._finished[writing]
            if complete.any():
                done.append((writing[complete], places[complete]))
            if not complete.all():
                rest = ~complete
                kept.append((writing[rest], groups[rest], places[rest]))
        self._entries = kept
        return done


class _GlobalSide:
    def __init__(self, watch: StampWatch) -> None:
        self._watch = watch

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """See `machine.Monitor`."""
        watch = self._watch
        buffer = watch._machine.memory.at(int(offsets[0]))
        stamps = None if buffer is None else watch.buffer(buffer)
        if buffer is not None and stamps is not None:
            shift = watch._shift["global"]
            first = (offsets - np.uint64(buffer.origin)).astype(np.int64) >> shift
            watch.see(site, lanes, first, stamps, shift, anywhere=True)


class _SharedSide:
    def __init__(self, watch: StampWatch) -> None:
        self._watch = watch

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """See `machine.Monitor`."""
        watch = self._watch
        shift = watch._shift["shared"]
        first = (offsets.astype(np.int64) >> shift) + watch._machine.shared.bases(1 << shift)[lanes]
        watch.see(site, lanes, first, watch.shared, shift, anywhere=False)


class _LocalSide:
    def __init__(self, watch: StampWatch) -> None:
        self._watch = watch

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """See `machine.Monitor`."""
        watch = self._watch
        first = offsets.astype(np.int64) + watch._machine.local.bases(1)[lanes]
        for byte in range(site.size):
            if site.action != "store":
                watch.suspect |= not watch.local_written[first + byte].all()
            watch.local_written[first + byte] = 1
