"""Loads and stores: resolves the bytes that lanes address, and detects addresses outside every array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.findings import LaunchStopped, plural
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction, Windowed
from kernelmate.backends.emulator.memory import Buffer
from kernelmate.backends.emulator.spaces import (
    CALL_PARAMETERS,
    GLOBAL_BASE,
    LOCAL_WINDOW,
    PARAM_WINDOW,
    PART_MASK,
    SHARED_WINDOW,
    WINDOW_BYTES,
    parts_of,
)
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode

_WORD = 1 << 64

Visit = Callable[[Array, Array, Any], None]
"""Callback with (memory as elements or rows, indices into it, lanes that they belong to).

The lanes are a slice for all, or an array of positions.
"""


def index_of(elements: Any) -> Array:
    """Returns the elements that a port visits as an array of indices."""
    return np.arange(elements.start, elements.stop) if type(elements) is slice else np.asarray(elements)


def visit_nothing(rows: Array, elements: Any, positions: Any) -> None:
    """Visits nothing, for accesses that are only checked."""


class GlobalPort:
    """Global memory as seen by one instruction: checks addresses and provides elements.

    Args:
        offset: constant added to every address.
        dtype: the dtype of one element.
    """

    def __init__(self, machine: Machine, site: MemoryInstruction, offset: int, dtype: np.dtype[Any]) -> None:
        self.machine = machine
        self.site = site
        self.offset = offset
        self.dtype = dtype
        self.shift = np.uint64(site.size.bit_length() - 1)
        self._low = np.uint64(site.size - 1)
        self._ramp = machine.lanes.iota.astype(np.uint64) * np.uint64(site.size)
        self._buffer: Buffer | None = None
        self._start = np.uint64(0)

    def visit(self, addresses: Array, active: Group, visit: Visit, values: Array | None = None) -> None:
        """Checks, records and visits the addresses of the active lanes; lanes with invalid addresses are left out."""
        for _ in range(2):
            buffer = self._buffer
            if buffer is not None:
                index = self._within(addresses, buffer)
                if index is not None:
                    offsets, elements = index
                    self._note(buffer, offsets, active, values)
                    visit(self._rows(buffer), elements, slice(None))
                    return
            found = self.machine.memory.at((int(addresses[0]) + self.offset) % _WORD)
            if found is None or found is buffer:
                break
            self._buffer = found
            self._start = np.uint64((found.origin - self.offset) % _WORD)
        self._scattered(addresses, active, visit, values)

    def _rows(self, buffer: Buffer) -> Array:
        return buffer.view(self.dtype) if self.site.count == 1 else buffer.rows(self.dtype, self.site.count)

    def _within(self, addresses: Array, buffer: Buffer) -> tuple[Array, Any] | None:
        """Returns offsets and element indices if all addresses lie well within the buffer."""
        offsets = addresses - self._start
        last = buffer.limit - self.site.size
        first_offset, last_offset = int(offsets[0]), int(offsets[-1])
        count = len(offsets)
        if last_offset - first_offset == (count - 1) * self.site.size and 1 < count <= len(self._ramp):
            inside = buffer.lead <= first_offset and last_offset <= last and not first_offset & int(self._low)
            inside = inside and buffer.period is None
            if inside and ((offsets - np.uint64(first_offset)) == self._ramp[:count]).all():
                begin = first_offset >> int(self.shift)
                return offsets, slice(begin, begin + count)
        if int(offsets.max()) > last or (buffer.lead and int(offsets.min()) < buffer.lead):
            return None
        if self._low and int(np.bitwise_or.reduce(offsets) & self._low):
            return None
        return offsets, buffer.elements(offsets, self.shift)

    def _note(self, buffer: Buffer, offsets: Array, active: Group, values: Array | None) -> None:
        machine, site = self.machine, self.site
        if site.action != "load":
            machine.changes += 1
            if not buffer.writable:
                self._mutated(buffer, offsets, active)
        if buffer.outlives and not buffer.read_first:
            if site.action == "load" or (site.action == "atomic" and not site.unused):
                machine.memory.note_read(buffer, offsets, site.size)
            if site.action != "load" and not buffer.read_first:
                machine.memory.note_store(buffer, offsets, site.size)
        if buffer.touched is not None:
            assert machine.memory.marks is not None, "what is touched is kept by marks"
            buffer.touched[offsets >> np.uint64(5)] |= buffer.touched.dtype.type(machine.memory.marks.mark(site.number))
        if machine.global_monitors:
            addresses = offsets + np.uint64(buffer.origin)
            lanes = machine.lanes_of(active)
            for monitor in machine.global_monitors:
                monitor.access(site, lanes, addresses, values)

    def _mutated(self, buffer: Buffer, offsets: Array, active: Group) -> None:
        lanes = self.machine.lanes_of(active)
        offset = int(offsets[0]) - buffer.lead
        what = "constant memory" if buffer.constant else "an array that the contract says is only read"
        self.machine.findings.report(
            FindingCode.INPUT_MUTATED,
            self.site.position,
            lanes,
            lambda: f"writes {plural(self.site.size, 'byte')} at byte {offset} of {buffer.name}, {what}",
            buffer=buffer.name,
            offset=offset,
        )

    def _scattered(self, addresses: Array, active: Group, visit: Visit, values: Array | None) -> None:
        """Slows path: handles each buffer separately, and reports lanes with invalid addresses."""
        machine, site = self.machine, self.site
        lanes = machine.lanes_of(active)
        full = addresses + np.uint64(self.offset % _WORD)
        slots = machine.memory.slots_of(full)
        misaligned = (full & self._low) != 0
        if misaligned.any():
            self._report_misaligned(full, lanes, misaligned)
        for slot in np.unique(slots):
            buffer = machine.memory.in_slot(int(slot))
            chosen = slots == slot
            if buffer is None:
                self._report_illegal(full[chosen], lanes[chosen])
                continue
            offsets = full - np.uint64(buffer.origin)
            signed = offsets.view(np.int64)
            outside = chosen & ((signed < buffer.lead) | (signed > buffer.limit - site.size))
            if outside.any():
                self._report_outside(buffer, signed[outside], lanes[outside])
            good = np.flatnonzero(chosen & ~outside & ~misaligned)
            if good.size:
                kept = offsets[good]
                self._note(buffer, kept, lanes[good], None if values is None else values[good])
                visit(self._rows(buffer), buffer.elements(kept, self.shift), good)

    def _report_misaligned(self, full: Array, lanes: Array, wrong: Array) -> None:
        address = int(full[wrong][0])
        buffer = self.machine.memory.at(address)
        offset = address - buffer.address if buffer else None
        where = f"byte {offset} of {buffer.name}" if buffer else f"address {address:#x}"
        self.machine.findings.report(
            FindingCode.MISALIGNED_ACCESS,
            self.site.position,
            lanes[wrong],
            lambda: (
                f"{_verb(self.site)} {plural(self.site.size, 'byte')} at {where}, which is not a multiple of {self.site.size}"
            ),
            buffer=buffer.name if buffer else None,
            offset=offset,
        )

    def _report_outside(self, buffer: Buffer, signed: Array, lanes: Array) -> None:
        offset = int(signed[0]) - buffer.lead
        where = (
            f"{plural(-offset, 'byte')} before the start of {buffer.name}"
            if offset < 0
            else f"at byte {offset} of {buffer.name}, which has {plural(buffer.size, 'byte')}"
        )
        self.machine.findings.report(
            FindingCode.OUT_OF_BOUNDS_READ if self.site.action == "load" else FindingCode.OUT_OF_BOUNDS_WRITE,
            self.site.position,
            lanes,
            lambda: f"{_verb(self.site)} {plural(self.site.size, 'byte')} {where}",
            buffer=buffer.name,
            offset=offset,
        )

    def _report_illegal(self, full: Array, lanes: Array) -> None:
        address = int(full[0])
        self.machine.findings.report(
            FindingCode.ILLEGAL_ADDRESS,
            self.site.position,
            lanes,
            lambda: f"{_verb(self.site)} {plural(self.site.size, 'byte')} at address {address:#x}, where no array is",
        )
        raise LaunchStopped


class WindowPort:
    """Shared or local memory as seen by one instruction."""

    def __init__(
        self, machine: Machine, site: MemoryInstruction, offset: int, dtype: np.dtype[Any], window: Windowed
    ) -> None:
        self.machine = machine
        self.site = site
        self.offset = offset
        self.window = window
        self._rows = window.rows(dtype, site.count)
        self._bases = window.bases(site.size)
        self._shift = site.size.bit_length() - 1

    def visit(self, addresses: Array, active: Group, visit: Visit, values: Array | None = None) -> None:
        """Check, note and visit; see `GlobalPort.visit`."""
        site, window = self.site, self.window
        offsets = addresses
        if self.offset:
            kind = addresses.dtype.type
            offsets = addresses + kind(self.offset % (1 << (8 * addresses.dtype.itemsize)))
        top = int(offsets.max())
        low = int(np.bitwise_or.reduce(offsets)) & (site.size - 1) if offsets.ndim else int(offsets) & (site.size - 1)
        if top > window.limit - site.size or low:
            self._scattered(np.broadcast_to(offsets, self.machine.lanes_of(active).shape), active, visit, values)
            return
        if site.action != "load":
            self.machine.changes += 1
        if window.monitors:
            lanes = self.machine.lanes_of(active)
            spread = np.broadcast_to(offsets, lanes.shape)
            for monitor in window.monitors:
                monitor.access(site, lanes, spread, values)
        elements = (offsets >> offsets.dtype.type(self._shift)).astype(np.int64) + self._bases[active]
        visit(self._rows, elements, slice(None))

    def _scattered(self, offsets: Array, active: Group, visit: Visit, values: Array | None) -> None:
        site, window = self.site, self.window
        lanes = self.machine.lanes_of(active)
        bits = 8 * offsets.dtype.itemsize
        signed = offsets.astype(np.dtype(f"u{bits // 8}")).view(np.dtype(f"i{bits // 8}")).astype(np.int64)
        outside = (signed < 0) | (signed > window.limit - site.size)
        misaligned = ~outside & ((signed & (site.size - 1)) != 0)
        if outside.any():
            self._report_outside(int(signed[outside][0]), lanes[outside])
        if misaligned.any():
            offset = int(signed[misaligned][0])
            self.machine.findings.report(
                FindingCode.MISALIGNED_ACCESS,
                site.position,
                lanes[misaligned],
                lambda: (
                    f"{_verb(site)} {plural(site.size, 'byte')} at byte {offset} of {window.name} memory, "
                    f"which is not a multiple of {site.size}"
                ),
                buffer=window.names(offset) or window.name,
                offset=offset,
            )
        good = np.flatnonzero(~outside & ~misaligned)
        if not good.size:
            return
        kept = signed[good]
        for monitor in window.monitors:
            monitor.access(site, lanes[good], kept, None if values is None else values[good])
        visit(self._rows, (kept >> self._shift) + self._bases[lanes[good]], good)

    def _report_outside(self, offset: int, lanes: Array) -> None:
        window, site = self.window, self.site
        if window.peers is not None and 0 < parts_of(np.array([offset]))[0] <= self.machine.lanes.cluster_blocks:
            self._report_foreign(lanes)
            return
        near = window.names(max(min(offset, window.limit - 1), 0)) or window.name
        owner = "block" if window.name == "shared" else "thread"
        self.machine.findings.report(
            FindingCode.OUT_OF_BOUNDS_READ if site.action == "load" else FindingCode.OUT_OF_BOUNDS_WRITE,
            site.position,
            lanes,
            lambda: (
                f"{_verb(site)} {plural(site.size, 'byte')} at byte {offset} of {window.name} memory, of which the "
                f"{owner} has {plural(window.limit, 'byte')}"
            ),
            buffer=near,
            offset=offset,
        )

    def _report_foreign(self, lanes: Array) -> None:
        self.machine.findings.report(
            FindingCode.ILLEGAL_ADDRESS,
            self.site.position,
            lanes,
            lambda: (
                f"{_verb(self.site)} shared memory of another block by an instruction for the block's own; use .shared::cluster "
                "or a generic address"
            ),
        )


class ClusterPort(WindowPort):
    """Shared memory of all blocks of a cluster as seen by one instruction."""

    def _scattered(self, offsets: Array, active: Group, visit: Visit, values: Array | None) -> None:
        lanes = self.machine.lanes_of(active)
        parts = parts_of(offsets)
        for chosen, run in ((np.flatnonzero(parts == 0), super()._scattered), (np.flatnonzero(parts), self._remote)):
            if not chosen.size:
                continue

            def through(rows: Array, elements: Any, positions: Any, chosen: Array = chosen) -> None:
                visit(rows, elements, chosen[positions])

            run(offsets[chosen], lanes[chosen], through, None if values is None else values[chosen])

    def _remote(self, offsets: Array, lanes: Array, visit: Visit, values: Array | None) -> None:
        """Visits addresses in the shared memory of other blocks of the cluster."""
        machine, site, window = self.machine, self.site, self.window
        ranks, within = parts_of(offsets) - 1, offsets.astype(np.int64) & PART_MASK
        if int(ranks.max()) >= machine.lanes.cluster_blocks:
            self._report_no_block(ranks, lanes)
        wrong = (within > window.limit - site.size) | (within & (site.size - 1) != 0)
        if wrong.any():
            # They are wrong in the same way in each block.
            super()._scattered(within[wrong], lanes[wrong], visit_nothing, None)
        good = np.flatnonzero(~wrong)
        if not good.size:
            return
        if site.action != "load":
            machine.changes += 1
        slots = machine.lanes.peers(lanes[good], ranks[good])
        self._watch_lifetimes(lanes[good], slots)
        for monitor in window.monitors:
            monitor.access(site, lanes[good], offsets[good], None if values is None else values[good])
        visit(self._rows, (within[good] >> self._shift) + slots * (window.stride // site.size), good)

    def _watch_lifetimes(self, lanes: Array, slots: Array) -> None:
        """Reports accesses to blocks that have ended, or may not have started."""
        machine = self.machine
        if machine.order is not None and machine.order.clusters is not None:
            machine.order.clusters.access(machine, self.site, lanes, slots)
        if not machine.some_ended:
            return
        running = np.asarray(machine.live.reshape(machine.lanes.blocks, -1).any(axis=1))
        ended = ~running[slots]
        if ended.any():
            block = machine.lanes.place_of(int(machine.lanes.block[int(slots[ended][0]) * machine.lanes.width]))
            machine.findings.report(
                FindingCode.ILLEGAL_ADDRESS,
                self.site.position,
                lanes[ended],
                lambda: (
                    f"{_verb(self.site)} shared memory of block {block} of its cluster, which has ended; let the blocks end "
                    "after a barrier of the cluster (cluster.sync())"
                ),
            )

    def _report_no_block(self, ranks: Array, lanes: Array) -> None:
        blocks = self.machine.lanes.cluster_blocks
        wrong = ranks >= blocks
        self.machine.findings.report(
            FindingCode.ILLEGAL_ADDRESS,
            self.site.position,
            lanes[wrong],
            lambda: (
                f"{_verb(self.site)} shared memory of the block of rank {int(ranks[wrong][0])}, and the cluster has "
                f"{plural(blocks, 'block')}"
            ),
        )
        raise LaunchStopped


class ParameterPort:
    """Parameters read through an address in a register: the kernel's block, or a call's in the thread's own frame."""

    def __init__(self, machine: Machine, site: MemoryInstruction, offset: int, dtype: np.dtype[Any]) -> None:
        self.machine = machine
        self.site = site
        self.offset = offset
        self._bytes = machine.parameters
        self._dtype = dtype
        self._frame = WindowPort(machine, site, offset - CALL_PARAMETERS, dtype, machine.local)

    def visit(self, addresses: Array, active: Group, visit: Visit, values: Array | None = None) -> None:
        """Visits the elements; the kernel's parameters are always in range unless it computes wildly."""
        if int(addresses.min()) + self.offset >= CALL_PARAMETERS:
            self._frame.visit(addresses, active, visit, values)
            return
        lanes = self.machine.lanes_of(active)
        offsets = np.broadcast_to(addresses.astype(np.int64) + self.offset, lanes.shape)
        size = self.site.size
        if int(offsets.min()) < 0 or int(offsets.max()) > len(self._bytes) - size:
            self.machine.findings.report(
                FindingCode.OUT_OF_BOUNDS_READ,
                self.site.position,
                lanes,
                lambda: f"{_verb(self.site)} {plural(size, 'byte')} outside the kernel's parameters",
                buffer="parameters",
            )
            raise LaunchStopped
        gathered = self._bytes[offsets[:, None] + np.arange(size)].reshape(-1).view(self._dtype)
        rows = gathered if self.site.count == 1 else gathered.reshape(-1, self.site.count)
        visit(rows, np.arange(len(lanes)), slice(None))


class GenericPort:
    """Generic addresses: dispatches each to the memory space that it points to."""

    def __init__(self, machine: Machine, site: MemoryInstruction, offset: int, dtype: np.dtype[Any]) -> None:
        self.machine = machine
        self.offset = offset
        self._global = GlobalPort(machine, site, offset, dtype)
        shared = WindowPort if machine.shared.peers is None else ClusterPort
        self._windows: list[tuple[int, WindowPort | ParameterPort]] = [
            (SHARED_WINDOW, shared(machine, site, 0, dtype, machine.shared)),
            (LOCAL_WINDOW, WindowPort(machine, site, 0, dtype, machine.local)),
            (PARAM_WINDOW, ParameterPort(machine, site, 0, dtype)),
        ]

    def visit(self, addresses: Array, active: Group, visit: Visit, values: Array | None = None) -> None:
        """Visits each space's lanes."""
        full = addresses + np.uint64(self.offset % _WORD)
        if int(full.min()) >= GLOBAL_BASE - WINDOW_BYTES:
            self._global.visit(addresses, active, visit, values)
            return
        lanes = self.machine.lanes_of(active)
        rest = np.ones(len(lanes), bool)
        for start, port in self._windows:
            relative = full - np.uint64(start)
            inside = relative < np.uint64(WINDOW_BYTES)
            if inside.any():
                rest &= ~inside
                self._part(port, relative, lanes, np.flatnonzero(inside), visit, values)
        if rest.any():
            self._part(self._global, addresses, lanes, np.flatnonzero(rest), visit, values)

    @staticmethod
    def _part(
        port: GlobalPort | WindowPort | ParameterPort,
        addresses: Array,
        lanes: Array,
        chosen: Array,
        visit: Visit,
        values: Array | None,
    ) -> None:
        def through(rows: Array, elements: Any, positions: Any) -> None:
            visit(rows, elements, chosen[positions])

        port.visit(addresses[chosen], lanes[chosen], through, None if values is None else values[chosen])


Port = GlobalPort | WindowPort | ParameterPort | GenericPort


def _verb(site: MemoryInstruction) -> str:
    return {"load": "reads", "store": "writes", "atomic": "atomically updates"}[site.action]
