"""Barriers in shared memory (`mbarrier`): threads arrive at them and test them, phase by phase, in the barrier's own bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import index_of, visit_nothing
from kernelmate.backends.emulator.atomics import ranks
from kernelmate.backends.emulator.findings import plural
from kernelmate.backends.emulator.happens_before import SCOPES
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.numerics.mbarrier_state import (
    advance,
    after_arrivals,
    parity_of,
    pending_of,
    state_of,
    transactions_of,
)
from kernelmate.backends.emulator.operations import PhaseBarrier
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound, Value, spread
from kernelmate.backends.emulator.types import UNSIGNED, Array
from kernelmate.records import FindingCode

_WORD = UNSIGNED[8]


class _Barrier:
    """Shared parts of every bound mbarrier action: operands, and accesses reported to race detection."""

    def __init__(
        self, operation: PhaseBarrier, machine: Machine, linked: LinkedKernel, number: int, position: Position | None, opcode: str
    ) -> None:  # fmt: skip
        self.machine = machine
        self.position = position
        self._operation = operation
        self._linked = linked
        words = frozenset(opcode.split("."))
        # PTX's default is the block, but CUTLASS lets blocks of a cluster wait for each other without a scope.
        scope = SCOPES["cta" if "cta" in words else "cluster"]
        # `served` 0: the barrier unit executes it, not the data path whose wavefronts are counted.
        plain = MemoryInstruction(number, "store", 8, 1, position, served=0)
        strong = replace(plain, synchronizing=True, scope=scope)
        self.orders = orders = "relaxed" not in words
        # Invalidating a barrier is not checked: CUDA's own pipelines do it by a user count that orders nothing.
        self.writes = self._addressing(plain if operation.action == "init" else strong)
        self.arrives = self._addressing(replace(strong, action="atomic", returns=True, releases=orders))
        self.reads = self._addressing(replace(strong, action="load"))
        self.acquires = self._addressing(replace(strong, action="load", acquires=orders))
        kind = "u64" if operation.action == "test" and not operation.parity else "u32"
        self.value: Value | None = (
            machine.registers.read(operation.value, kind) if operation.value is not None else None
        )
        self.transactions: Value | None = (
            machine.registers.read(operation.transactions, "u32") if operation.transactions is not None else None
        )

    def _addressing(self, site: MemoryInstruction) -> Addressing:
        operation = self._operation
        return Addressing(self.machine, self._linked, site, operation.space, operation.address, _WORD)

    def values(self, active: Group, count: int) -> Array:
        """Returns the value operand of each lane."""
        assert self.value is not None
        return spread(self.value, active, count)


def bind_phase_barrier(
    operation: PhaseBarrier, machine: Machine, linked: LinkedKernel, number: int, position: Position | None, opcode: str
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
    return _bind_arrive(barrier, target, operation.action)


def _bind_init(barrier: _Barrier, *, valid: bool) -> Bound:
    def run(group: Group | None, active: Group) -> None:
        del group
        counts = barrier.values(active, len(barrier.machine.lanes_of(active)))
        data = state_of(counts, counts, np.zeros(len(counts), np.uint64)) if valid else np.zeros(len(counts), np.uint64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            rows[elements] = data[positions]
            _turn(barrier.machine, index_of(elements))

        barrier.writes.port.visit(barrier.writes.addresses(active), active, visit, data)

    return run


def _bind_arrive(barrier: _Barrier, target: Array | None, action: str) -> Bound:
    """Binds arrivals, and changes of the transaction count alone."""
    machine = barrier.machine
    drop, sign = action == "drop", -1 if action == "complete" else 1

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        counts = barrier.values(active, len(lanes))
        moved = np.zeros(len(lanes), np.int64)
        if barrier.transactions is not None:
            moved = sign * spread(barrier.transactions, active, len(lanes)).astype(np.int64)
        old = np.zeros(len(lanes), np.uint64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            index = index_of(elements)
            mine = counts[positions]
            if (
                not drop
                and barrier.transactions is None
                and (mine == 1).all()
                and not transactions_of(rows[index]).any()
            ):
                old[positions] = _one_each(machine, rows, index)
                return
            before, over = move_in_turn(machine, rows, index, PhaseChange(mine, moved[positions], drop))
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


def _one_each(machine: Machine, rows: Array, index: Array) -> Array:
    """Arrives once per lane in sequence, where no bytes are expected; returns the state that each lane found."""
    rank, _ = ranks(index)
    turn = np.zeros(len(index), np.int64) if rank is None else rank
    start = rows[index]
    last = after_arrivals(start, turn + 1)
    order = np.argsort(turn, kind="stable")
    rows[index[order]] = last[order]
    _turn(machine, index[turn + 1 >= pending_of(start)])
    return after_arrivals(start, turn)


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One change of a barrier per lane: arrivals, and bytes expected (positive) or arrived (negative)."""

    counts: Array
    transactions: Array
    drop: bool = False


def move_in_turn(machine: Machine, rows: Array, index: Array, change: PhaseChange) -> tuple[Array, Array]:
    """Changes barriers lane by lane; returns the states found, and where a count exceeded the pending arrivals."""
    counts, moved = change.counts, change.transactions
    rank, _ = ranks(index)
    turn = np.zeros(len(index), np.int64) if rank is None else rank
    before = np.zeros(len(index), np.uint64)
    over = np.zeros(len(index), bool)
    for step in range(int(turn.max()) + 1):
        lanes = np.flatnonzero(turn == step)
        places = index[lanes]
        before[lanes] = rows[places]
        rows[places], over[lanes] = advance(before[lanes], counts[lanes], moved[lanes], drop=change.drop)
        for place, amount in zip(places.tolist(), moved[lanes].tolist(), strict=True):
            (machine.phases.expected if amount > 0 else machine.phases.arrived)[place] += abs(amount)
        _turn(machine, places[parity_of(rows[places]) != parity_of(before[lanes])])
    machine.changes += 1
    return before, over


def _turn(machine: Machine, index: Array) -> None:
    """Records that phases are complete, at barriers by their index."""
    if index.size:
        places = np.unique(index).tolist()
        machine.phases.turned(places)
        if machine.order is not None:
            machine.order.transfers.turned(places)


def reason_to_wait(machine: Machine, lanes: Array) -> str:
    """Returns the arrivals or bytes that an mbarrier on which some lanes wait still lacks, for the message about a hang; else an empty text."""
    places = machine.phases.awaited[lanes]
    if not (places >= 0).any():
        return ""
    place = int(places[places >= 0][0])
    offset = 8 * place % machine.shared.stride
    state = machine.shared.rows(_WORD, 1)[place : place + 1]
    name = machine.shared.names(offset)
    expected, arrived = machine.phases.expected[place], machine.phases.arrived[place]
    where = f"{name} (byte {offset} of shared memory)" if name else f"at byte {offset} of shared memory"
    text = f"; the mbarrier {where} waits for {plural(int(pending_of(state)[0]), 'arrival')}"
    if not expected and not arrived:
        return text
    return f"{text}, and of the {plural(expected, 'byte')} that it expects {arrived} have arrived"


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
                index = index_of(elements)
                ones = np.ones(len(index), np.int64)
                move_in_turn(machine, rows, index, PhaseChange(ones, 0 * ones))

        barrier.arrives.port.visit(barrier.arrives.addresses(active), active, visit)

    return run


def _bind_test(barrier: _Barrier, target: Array | None, *, parity: bool) -> Bound:
    machine = barrier.machine

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        asked = barrier.values(active, len(lanes))
        phase = asked.astype(np.uint64) & np.uint64(1) if parity else parity_of(asked)
        done = np.zeros(len(lanes), bool)
        places = np.full(len(lanes), -1, np.int64)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            done[positions] = parity_of(rows[elements]) != phase[positions]
            places[positions] = index_of(elements)

        barrier.reads.port.visit(barrier.reads.addresses(active), active, visit)
        machine.phases.awaited[lanes] = np.where(done, -1, places)
        if machine.order is not None and done.any():
            # Only a thread that sees its phase complete has synchronised with the arriving threads.
            through = lanes[done]
            barrier.acquires.port.visit(barrier.acquires.addresses(through), through, visit_nothing)
            if barrier.orders:
                machine.order.transfers.observe(through, places[done])
        if target is not None:
            target[active] = done

    return run
