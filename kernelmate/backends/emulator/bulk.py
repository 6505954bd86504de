"""Asynchronous and bulk copies: executed at once, but under way until a thread has waited for them.

PTX ISA, Data Movement and Conversion Instructions: cp.async, cp.async.bulk, cp.reduce.async.bulk,
cp.async.bulk.commit_group, cp.async.bulk.wait_group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import index_of, visit_nothing
from kernelmate.backends.emulator.atomics import Update, updater
from kernelmate.backends.emulator.findings import plural
from kernelmate.backends.emulator.happens_before import SCOPES
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.mbarriers import PhaseChange, move_in_turn
from kernelmate.backends.emulator.operations import AsyncCopy, AsyncGroup, BulkCopy, BulkGroup
from kernelmate.backends.emulator.program import Address, Position
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, spread
from kernelmate.backends.emulator.types import DTYPES, SIZES, UNSIGNED, Array
from kernelmate.records import FindingCode


def bind_copy(
    operation: AsyncCopy, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Returns a copy as a function of the active lanes: bytes beyond the source size are zeros."""
    size = operation.size
    kind = UNSIGNED[min(size, 8)]
    count = size // kind.itemsize
    reads = MemoryInstruction(number, "load", size, count, position)
    source = Addressing(machine, linked, reads, "global", operation.origin, kind)
    steps = [
        Addressing(
            machine, linked, MemoryInstruction(number, "load", 1, 1, position), "global",
            Address(operation.origin.base, operation.origin.offset + byte), UNSIGNED[1],
        )
        for byte in range(size if operation.taken is not None else 0)
    ]  # fmt: skip
    writes = MemoryInstruction(number, "store", size, count, position, asynchronous=True)
    target = Addressing(machine, linked, writes, "shared", operation.to, kind)
    taken = (
        machine.registers.read(operation.taken, "u32")
        if operation.taken is not None
        else ConstantOperand(np.uint32(size))
    )

    def fetch(lanes: Array) -> Array:
        data = np.zeros((len(lanes), size), np.uint8)
        wanted = np.minimum(spread(taken, lanes, len(lanes)), size)
        whole = np.flatnonzero(wanted == size)
        if whole.size:
            _gather(source, lanes[whole], data, whole, kind, count)
        for byte, step in enumerate(steps):
            part = np.flatnonzero((wanted > byte) & (wanted < size))
            if part.size:
                _gather(step, lanes[part], data[:, byte : byte + 1], part, UNSIGNED[1], 1)
        return data

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        data = np.ascontiguousarray(fetch(lanes)).view(kind)
        values = data.reshape(-1) if count == 1 else data

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            rows[elements] = values[positions]

        target.port.visit(target.addresses(active), active, visit, values)

    return run


def _gather(addressing: Addressing, lanes: Array, data: Array, places: Array, kind: np.dtype[Any], count: int) -> None:
    """Loads for some lanes into rows of bytes."""

    def visit(rows: Array, elements: Any, positions: Any) -> None:
        values = np.ascontiguousarray(rows[elements]).reshape(-1, count)
        data[places[positions]] = values.view(np.uint8).reshape(len(values), kind.itemsize * count)

    addressing.port.visit(addressing.addresses(lanes), lanes, visit)


def bind_group(operation: AsyncGroup, machine: Machine) -> Bound | None:
    """Closes a group, waits for groups, or both; matters only for race detection."""
    watchers = machine.copy_watchers
    if not watchers:
        return None

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        for watcher in watchers:
            watcher(lanes, operation)

    return run


CHUNK = 16
"""Bytes of which addresses and sizes of bulk copies must be multiples."""
_WORD = UNSIGNED[8]
TO, FROM, _BARRIER = 1, 2, 3
"""Parts of a copy: what it writes, what it reads, and its barrier."""


def site_number(number: int, space: str, part: int) -> int:
    """Returns the number of the site of one side of a copy.

    The global side has the instruction's own, by which sectors are counted; an access history tells the others apart.
    """
    return number if space == "global" else -(4 * number + part)


class Completion:
    """The end of bulk copies: at an mbarrier that counts their bytes, or in the thread's group of copies."""

    def __init__(
        self, machine: Machine, linked: LinkedKernel, number: int, position: Position | None, space: str,
        barrier: Address | None,
    ) -> None:  # fmt: skip
        self._machine = machine
        self._barrier: Addressing | None = None
        if barrier is not None:
            # A strong read for the race checks: the async proxy changes the barrier, not the thread.
            site = MemoryInstruction(
                site_number(number, "shared", _BARRIER), "load", 8, 1, position, scope=SCOPES["cluster"], served=0
            )
            site.proxy = "barrier"
            self._barrier = Addressing(machine, linked, site, space, barrier, _WORD)

    def begin(self, lanes: Array) -> None:
        """Begins the copies of some lanes, before their first access."""
        order = self._machine.order
        if order is None:
            return
        order.tick()
        if self._barrier is None:
            order.transfers.start(lanes, None)
            return
        places = np.full(len(lanes), -1, np.int64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            del rows
            places[positions] = index_of(elements)

        self._barrier.port.visit(self._barrier.addresses(lanes), lanes, visit)
        order.transfers.start(lanes, places)

    def end(self, lanes: Array, sizes: Array) -> None:
        """Counts the bytes of each lane's copy at its barrier."""
        if self._barrier is None:
            return

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            moved = -sizes[positions].astype(np.int64)
            move_in_turn(self._machine, rows, index_of(elements), PhaseChange(0 * moved, moved))

        self._barrier.port.visit(self._barrier.addresses(lanes), lanes, visit)


class _Side:
    """One side of copies: ports for elements, and for the check of alignment."""

    def __init__(
        self, machine: Machine, linked: LinkedKernel, site: MemoryInstruction, space: str, address: Address
    ) -> None:
        self.site = site
        kind = UNSIGNED[site.size // site.count]
        self.elements = Addressing(machine, linked, site, space, address, kind)
        probe = replace(site, size=CHUNK, count=CHUNK // 8, action="load" if site.action == "load" else "store")
        self._probe = Addressing(machine, linked, probe, space, address, _WORD)

    def addresses(self, lanes: Array) -> Array:
        """Returns the address of each lane's copy, without the constant part that the port adds."""
        return np.array(np.broadcast_to(self.elements.addresses(lanes), lanes.shape))

    def misaligned(self, lanes: Array, addresses: Array) -> Array:
        """Returns, and reports, the lanes whose address is not a multiple of 16."""
        wrong = np.asarray((addresses + addresses.dtype.type(self._probe.port.offset % CHUNK)) % CHUNK != 0)
        if wrong.any():
            self._probe.port.visit(addresses[wrong], lanes[wrong], visit_nothing)
        return wrong


def bind_bulk_copy(
    operation: BulkCopy, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:
    """Binds a copy, or a reduction with the destination, as a function of the active lanes."""
    to_space, from_space = operation.spaces
    loads = MemoryInstruction(site_number(number, from_space, FROM), "load", CHUNK, 2, position, proxy="copy", served=0)
    origin = _Side(machine, linked, loads, from_space, operation.origin)
    stores = replace(loads, number=site_number(number, to_space, TO), action="store")
    reduction = None
    if operation.action:
        # Each element is reduced by a relaxed atomic at gpu scope.
        width = SIZES[operation.kind]
        stores = replace(stores, action="atomic", size=width, count=1, scope=SCOPES["gpu"])
        reduction = updater(operation.action, operation.kind, returns=False)
    target = _Side(machine, linked, stores, to_space, operation.to)
    size = machine.registers.read(operation.size, "u32")
    completion = Completion(machine, linked, number, position, to_space, operation.barrier)

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        sizes = spread(size, lanes, len(lanes)).astype(np.int64)
        starts, ends = origin.addresses(lanes), target.addresses(lanes)
        completion.begin(lanes)
        wrong = (
            _uneven(machine, position, lanes, sizes) | origin.misaligned(lanes, starts) | target.misaligned(lanes, ends)
        )
        moved = np.flatnonzero(~wrong & (sizes > 0))
        if moved.size:
            data = _read(origin, lanes[moved], starts[moved], sizes[moved])
            _write(target, lanes[moved], ends[moved], sizes[moved], data, reduction, operation.kind)
        # The barrier counts refused copies too: they have been reported, and a hang would hide that.
        completion.end(lanes, sizes)

    return run


def _uneven(machine: Machine, position: Position | None, lanes: Array, sizes: Array) -> Array:
    """Returns, and reports, the lanes whose size is not a multiple of 16."""
    wrong = np.asarray(sizes % CHUNK != 0)
    if wrong.any():
        size = int(sizes[wrong][0])
        machine.findings.report(
            FindingCode.MISALIGNED_ACCESS,
            position,
            lanes[wrong],
            lambda: f"makes a bulk copy of {plural(size, 'byte')}, which is not a multiple of {CHUNK}",
        )
    return wrong


def _pieces(sizes: Array, width: int) -> tuple[Array, Array]:
    """Returns, for every piece of `width` bytes of all copies, the number of its copy and its offset there."""
    counts = sizes // width
    owners = np.repeat(np.arange(len(sizes)), counts)
    first = np.cumsum(counts) - counts
    return owners, (np.arange(len(owners)) - first[owners]) * width


def _read(side: _Side, lanes: Array, starts: Array, sizes: Array) -> Array:
    """Returns the bytes of all copies, one after another; zeros in place of bytes at invalid addresses."""
    owners, offsets = _pieces(sizes, CHUNK)
    data = np.zeros((len(owners), CHUNK // 8), _WORD)

    def visit(rows: Array, elements: Any, positions: Any) -> None:
        data[positions] = rows[elements]

    side.elements.port.visit(starts[owners] + offsets.astype(starts.dtype), lanes[owners], visit)
    return data.view(np.uint8).reshape(-1)


def _write(
    side: _Side, lanes: Array, ends: Array, sizes: Array, data: Array, reduction: Update | None, kind: str
) -> None:  # fmt: skip
    site = side.site
    owners, offsets = _pieces(sizes, site.size)
    element = UNSIGNED[site.size // site.count]
    values = data.view(element) if site.count == 1 else data.view(element).reshape(-1, site.count)

    def visit(rows: Array, elements: Any, positions: Any) -> None:
        if reduction is None:
            rows[elements] = values[positions]
        else:
            reduction(rows, index_of(elements), values[positions].view(DTYPES[kind]), None)

    side.elements.port.visit(ends[owners] + offsets.astype(ends.dtype), lanes[owners], visit, values)


def bind_bulk_group(operation: BulkGroup, machine: Machine) -> Bound | None:
    """Closes a group of bulk copies, or waits for groups; matters only for race detection."""
    order = machine.order
    if order is None:
        return None

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        if operation.left is None:
            order.transfers.commit(lanes)
        else:
            order.transfers.wait(lanes, operation.left, reads=operation.reads)

    return run
