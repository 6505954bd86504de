"""Asynchronous copies from global to shared memory: executed at once, but visible only to threads that wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import Linked
from kernelmate.backends.emulator.machine import Machine, Site
from kernelmate.backends.emulator.operations import AsyncCopy, AsyncGroup
from kernelmate.backends.emulator.program import Address, Position
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, spread
from kernelmate.backends.emulator.transfer import Addressing
from kernelmate.backends.emulator.types import UNSIGNED, Array


def bind_copy(
    operation: AsyncCopy, machine: Machine, linked: Linked, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Returns a copy as a function of the active lanes: bytes beyond the source size are zeros."""
    size = operation.size
    kind = UNSIGNED[min(size, 8)]
    count = size // kind.itemsize
    reads = Site(number, "load", size, count, position)
    source = Addressing(machine, linked, reads, "global", operation.origin, kind)
    steps = [
        Addressing(
            machine, linked, Site(number, "load", 1, 1, position), "global",
            Address(operation.origin.base, operation.origin.offset + byte), UNSIGNED[1],
        )
        for byte in range(size if operation.taken is not None else 0)
    ]  # fmt: skip
    writes = Site(number, "store", size, count, position, asynchronous=True)
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
