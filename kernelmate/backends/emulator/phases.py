"""Barriers in shared memory (`mbarrier`): threads arrive at them and test them, phase by phase, in the barrier's own bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelmate.backends.emulator.atomics import ranks
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import Linked
from kernelmate.backends.emulator.machine import Machine, Site
from kernelmate.backends.emulator.numerics.phases import after, arrive_at, parity_of, state_of
from kernelmate.backends.emulator.operations import PhaseBarrier
from kernelmate.backends.emulator.order import SCOPES
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound, Value, spread
from kernelmate.backends.emulator.transfer import Addressing
from kernelmate.backends.emulator.types import UNSIGNED, Array
from kernelmate.records import FindingCode

_WORD = UNSIGNED[8]


class _Barrier:
    """Shared parts of every bound mbarrier action: operands, and accesses reported to race detection."""

    def __init__(
        self, operation: PhaseBarrier, machine: Machine, linked: Linked, number: int, position: Position | None, opcode: str
    ) -> None:  # fmt: skip
        self.machine = machine
        self.position = position
        self._operation = operation
        self._linked = linked
        words = frozenset(opcode.split("."))
        # PTX's default is the block, but CUTLASS lets blocks of a cluster wait for each other without a scope.
        scope = SCOPES["cta" if "cta" in words else "cluster"]
        # `served` 0: the barrier unit executes it, not the data path whose wavefronts are counted.
        plain = Site(number, "store", 8, 1, position, served=0)
        strong = replace(plain, synchronizing=True, scope=scope)
        orders = "relaxed" not in words
        # Invalidating a barrier is not checked: CUDA's own pipelines do it by a user count that orders nothing.
        self.writes = self._addressing(plain if operation.action == "init" else strong)
        self.arrives = self._addressing(replace(strong, action="atomic", returns=True, releases=orders))
        self.reads = self._addressing(replace(strong, action="load"))
        self.acquires = self._addressing(replace(strong, action="load", acquires=orders))
        kind = "u64" if operation.action == "test" and not operation.parity else "u32"
        self.value: Value | None = (
            machine.registers.read(operation.value, kind) if operation.value is not None else None
        )

    def _addressing(self, site: Site) -> Addressing:
        operation = self._operation
        return Addressing(self.machine, self._linked, site, operation.space, operation.address, _WORD)

    def values(self, active: Group, count: int) -> Array:
        """Returns the value operand of each lane."""
        assert self.value is not None
        return spread(self.value, active, count)


def bind_phase_barrier(
    operation: PhaseBarrier, machine: Machine, linked: Linked, number: int, position: Position | None, opcode: str
) -> Bound:  # fmt: skip
    """Binds an mbarrier action as a function of the active lanes."""
    barrier = _Barrier(operation, machine, linked, number, position, opcode)
    if operation.action in {"init", "inval"}:
        return _bind_init(barrier, valid=operation.action == "init")
    if operation.action == "test":
        found = machine.registers.target(operation.result, "pred") if operation.result else None
        return _bind_test(barrier, found, parity=operation.parity)
    target = machine.registers.target(operation.result, "b64") if operation.result else None
    if operation.action in {"copies", "count_copies"}:
        return _bind_copies(barrier, counted=operation.action == "count_copies")
    return _bind_arrive(barrier, target, drop=operation.action == "drop")


def _bind_init(barrier: _Barrier, *, valid: bool) -> Bound:
    def run(group: Group | None, active: Group) -> None:
        del group
        counts = barrier.values(active, len(barrier.machine.lanes_of(active)))
        data = state_of(counts, counts, np.zeros(len(counts), np.uint64)) if valid else np.zeros(len(counts), np.uint64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            rows[elements] = data[positions]

        barrier.writes.port.visit(barrier.writes.addresses(active), active, visit, data)

    return run


def _bind_arrive(barrier: _Barrier, target: Array | None, *, drop: bool) -> Bound:
    machine = barrier.machine

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        counts = barrier.values(active, len(lanes))
        old = np.zeros(len(lanes), np.uint64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            index = np.arange(elements.start, elements.stop) if type(elements) is slice else elements
            mine = counts[positions]
            if not drop and (mine == 1).all():
                old[positions] = _one_each(rows, index)
                return
            before, over = _in_turn(rows, index, mine, drop)
            old[positions] = before
            if over.any():
                machine.findings.report(
                    FindingCode.DIVERGENT_BARRIER,
                    barrier.position,
                    lanes[positions][over],
                    lambda: "arrives at an mbarrier with a count over what its phase still waits for",
                )

        barrier.arrives.port.visit(barrier.arrives.addresses(active), active, visit)
        if target is not None:
            target[active] = old

    return run


def _one_each(rows: Array, index: Array) -> Array:
    """Arrives once per lane in sequence; returns the state that each lane found."""
    rank, _ = ranks(index)
    turn = np.zeros(len(index), np.int64) if rank is None else rank
    start = rows[index]
    last = after(start, turn + 1)
    order = np.argsort(turn, kind="stable")
    rows[index[order]] = last[order]
    return after(start, turn)


def _in_turn(rows: Array, index: Array, counts: Array, drop: bool) -> tuple[Array, Array]:
    rank, _ = ranks(index)
    turn = np.zeros(len(index), np.int64) if rank is None else rank
    before = np.zeros(len(index), np.uint64)
    over = np.zeros(len(index), bool)
    for step in range(int(turn.max()) + 1):
        lanes = np.flatnonzero(turn == step)
        before[lanes] = rows[index[lanes]]
        rows[index[lanes]], over[lanes] = arrive_at(before[lanes], counts[lanes], drop=drop)
    return before, over


def _bind_copies(barrier: _Barrier, *, counted: bool) -> Bound:
    """Binds the completion of copies, which the arrival makes visible."""
    machine = barrier.machine

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        if machine.order is not None:
            machine.order.copies.commit(lanes)
            machine.order.copies.wait(lanes, 0, machine.order.now)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            del positions
            if counted:
                index = np.arange(elements.start, elements.stop) if type(elements) is slice else elements
                _one_each(rows, index)

        barrier.arrives.port.visit(barrier.arrives.addresses(active), active, visit)

    return run


def _bind_test(barrier: _Barrier, target: Array | None, *, parity: bool) -> Bound:
    machine = barrier.machine

    def nothing(rows: Array, elements: Any, positions: Any) -> None:
        del rows, elements, positions

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        asked = barrier.values(active, len(lanes))
        phase = asked.astype(np.uint64) & np.uint64(1) if parity else parity_of(asked)
        done = np.zeros(len(lanes), bool)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            done[positions] = parity_of(rows[elements]) != phase[positions]

        barrier.reads.port.visit(barrier.reads.addresses(active), active, visit)
        if machine.order is not None and done.any():
            # Only a thread that sees its phase complete has synchronised with the arriving threads.
            through = lanes[done]
            barrier.acquires.port.visit(barrier.acquires.addresses(through), through, nothing)
        if target is not None:
            target[active] = done

    return run
