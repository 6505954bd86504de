"""Atomic operations: every lane's update as one step, lanes in slot order or in that of the schedule (`contention`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from kernelmate.backends.emulator.access import index_of
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.operations import Atomic
from kernelmate.backends.emulator.registers import Bound, Value, spread, values_of
from kernelmate.backends.emulator.types import DTYPES, PAIRS, SIZES, UNSIGNED, Array

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_FEW = 16
"""Lanes per address up to which they are processed in rounds; with more, each address is processed by itself."""

Combine = Callable[[Array, Array, Array | None], Array]
Update = Callable[[Array, Array, Array, Array | None], Array]
"""Function of memory as elements, indices into it, one value per index, and the values of `cas`; returns the bits before."""


def bind_atomic(operation: Atomic, machine: Machine, linked: LinkedKernel, site: MemoryInstruction) -> Bound:
    """Binds an atomic as a function of the active lanes."""
    kind = operation.kind
    bits = UNSIGNED[SIZES[kind]]
    addressing = Addressing(machine, linked, site, operation.space, operation.address, bits)
    value = machine.registers.read(operation.value, kind)
    swap = machine.registers.read(operation.swap, kind) if operation.swap is not None else None
    target = machine.registers.target(operation.result, f"b{8 * SIZES[kind]}") if operation.result else None
    update = updater(operation.action, kind, returns=target is not None)
    port = addressing.port
    # Equal updates without old values commute.
    contention = None if target is None and operation.action in _UFUNCS else machine.contention

    def run(group: Group | None, active: Group) -> None:
        del group
        count = len(machine.lanes_of(active))
        data = _operand(value, active, count, kind)
        other = None if swap is None else _operand(swap, active, count, kind)
        old = np.zeros(count, bits)
        changes, same = machine.changes, target is not None
        lanes = None if contention is None else machine.lanes_of(active)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            nonlocal same
            index, given = index_of(elements), data[positions]
            swapped = None if other is None else other[positions]
            if contention is None or lanes is None:
                before = update(rows, index, given, swapped)
            else:
                order = contention.order(site.number, lanes[positions])
                before = np.empty(len(index), bits)
                before[order] = update(rows, index[order], given[order], None if swapped is None else swapped[order])
            old[positions] = before
            same = same and np.array_equal(before, rows[index])

        port.visit(addressing.addresses(active), active, visit, data)
        if same:
            # A failed lock attempt changes nothing, so no waiting thread can proceed because of it.
            machine.changes = changes
        if target is not None:
            target[active] = old

    return run


def _operand(value: Value, active: Group, count: int, kind: str) -> Array:
    if kind not in PAIRS:
        return spread(value, active, count)
    found = values_of(value, active)
    return np.ascontiguousarray(np.broadcast_to(found, (count, 2)))


def updater(action: str, kind: str, *, returns: bool) -> Update:
    """Returns a function that applies the action to elements of memory, and returns the bits before each lane's update."""
    combine = _combine(action)
    ufunc = _UFUNCS.get(action) if DTYPES[kind] != ml_dtypes.bfloat16 else None
    dtype = DTYPES[kind]

    def update(rows: Array, index: Array, data: Array, other: Array | None) -> Array:
        memory = rows.view(dtype).reshape(-1, 2) if kind in PAIRS else rows.view(dtype)
        if not returns and ufunc is not None and kind not in PAIRS:
            ufunc.at(memory, index, data)
            return rows[index]
        rank, groups = ranks(index)
        if rank is None:
            before = memory[index]
            memory[index] = combine(before, data, other)
        elif int(rank.max()) < _FEW or kind in PAIRS:
            before = _in_rounds(memory, index, data, other, rank, combine)
        else:
            before = _by_address(memory, groups, data, other, ufunc, combine)
        return np.ascontiguousarray(before).view(rows.dtype).reshape(len(index))

    return update


def ranks(index: Array) -> tuple[Array | None, list[Array]]:
    """Returns the number of earlier lanes with the same address (None if no two have), and the lanes of each address."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.ones(len(index), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    if first.all():
        return None, []
    starts = np.flatnonzero(first)
    positions = np.arange(len(index))
    rank = np.empty(len(index), np.int64)
    rank[order] = positions - np.maximum.accumulate(np.where(first, positions, 0))
    return rank, [index[order], order, starts]


def _in_rounds(memory: Array, index: Array, data: Array, other: Array | None, rank: Array, combine: Combine) -> Array:
    before = np.empty_like(data)
    for turn in range(int(rank.max()) + 1):
        lanes = np.flatnonzero(rank == turn)
        place = index[lanes]
        current = memory[place]
        before[lanes] = current
        memory[place] = combine(current, data[lanes], None if other is None else other[lanes])
    return before


def _by_address(
    memory: Array, groups: list[Array], data: Array, other: Array | None, ufunc: np.ufunc | None, combine: Combine
) -> Array:
    ordered, order, starts = groups
    before = np.empty_like(data)
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        lanes, place = order[start:end], ordered[start]
        if ufunc is not None:
            # Without its dtype a sum of small integers would be kept in 64 bits and not wrap.
            chain = ufunc.accumulate(np.concatenate((memory[place : place + 1], data[lanes])), dtype=data.dtype)
            before[lanes] = chain[:-1]
            memory[place] = chain[-1]
            continue
        for lane in lanes:
            current = memory[place : place + 1].copy()
            before[lane] = current[0]
            memory[place : place + 1] = combine(
                current, data[lane : lane + 1], None if other is None else other[lane : lane + 1]
            )
    return before


def _compare_and_swap(current: Array, data: Array, other: Array | None) -> Array:
    assert other is not None
    return np.where(current == data, other, current)


def _combine(action: str) -> Combine:
    if action in _UFUNCS:
        ufunc = _UFUNCS[action]
        return lambda current, data, other: np.asarray(ufunc(current, data)).astype(current.dtype)
    if action == "exch":
        return lambda current, data, other: data
    if action == "inc":
        return lambda current, data, other: np.where(
            current >= data, current.dtype.type(0), current + current.dtype.type(1)
        )
    if action == "dec":
        return lambda current, data, other: np.where(
            (current == 0) | (current > data), data, current - current.dtype.type(1)
        )
    return _compare_and_swap
