"""Barriers of clusters (`barrier.cluster`): arrival of the threads of all blocks of a cluster, and their waiting.

PTX ISA, barrier.cluster: a barrier has one phase after the other, which every thread of the cluster that has not ended
arrives at once and waits for once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.barriers import Resume
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import ClusterBarrier
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode


@dataclass(frozen=True, slots=True)
class BoundClusterBarrier:
    """One instruction on the barrier of a cluster.

    Attributes:
        step: its number.
        detours: the ends of threads that have bypassed an arrival, by step (`barrier_exits`).
    """

    operation: ClusterBarrier
    position: Position | None
    step: int
    detours: frozenset[int] = frozenset()


@dataclass(slots=True)
class _WaitingGroup:
    barrier: BoundClusterBarrier
    key: int
    lanes: Array


class ClusterBarriers:
    """The barriers of the clusters of a batch; `resume` receives lanes that continue.

    `present` is False for a kernel without such barriers.
    """

    def __init__(self, machine: Machine, resume: Resume, *, present: bool) -> None:
        self._machine = machine
        self._resume = resume
        self._cluster = machine.lanes.slot // machine.lanes.cluster_blocks
        self._count = machine.lanes.blocks // machine.lanes.cluster_blocks
        self._arrived = np.zeros(machine.lanes.count, bool)
        self._arrived_at = np.zeros(machine.lanes.count, np.int32)
        self._owes_wait = np.zeros(machine.lanes.count, bool)
        self._ended_at = np.zeros(machine.lanes.count, np.int32)
        self._barriers: dict[int, BoundClusterBarrier] = {}
        self._waiting: list[_WaitingGroup] = []
        self._present = present

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def reset(self) -> None:
        """Clears all state, for a new batch."""
        self._waiting.clear()
        for marks in (self._arrived, self._owes_wait):
            marks.fill(False)
        self._ended_at.fill(-1)

    def meet(self, barrier: BoundClusterBarrier, key: int, lanes: Array) -> None:
        """Lets lanes arrive or wait; `key` is where they continue."""
        if barrier.operation.waits:
            self._wait(barrier, key, lanes)
        else:
            self._arrive(barrier, lanes)
            self._resume(key, lanes)

    def _arrive(self, barrier: BoundClusterBarrier, lanes: Array) -> None:
        self._report(
            barrier,
            lanes[self._owes_wait[lanes]],
            "arrives at the barrier of its cluster again without having waited for it",
        )
        self._arrived[lanes] = self._owes_wait[lanes] = True
        self._arrived_at[lanes] = barrier.step
        self._barriers[barrier.step] = barrier
        order = self._machine.order
        if order is not None and order.clusters is not None:
            order.clusters.arrive(lanes, relaxed=barrier.operation.relaxed)
        self._release()

    def _wait(self, barrier: BoundClusterBarrier, key: int, lanes: Array) -> None:
        early = lanes[~self._owes_wait[lanes]]
        self._report(barrier, early, "waits for the barrier of its cluster without having arrived at it")
        open_phase = self._arrived[lanes]
        passing, waiting = lanes[~open_phase], lanes[open_phase]
        if waiting.size:
            self._waiting.append(_WaitingGroup(barrier, key, waiting))
        if passing.size:
            self._pass(key, passing)

    def _pass(self, key: int, lanes: Array) -> None:
        self._owes_wait[lanes] = False
        order = self._machine.order
        if order is not None and order.clusters is not None:
            order.clusters.wait(lanes)
        self._resume(key, lanes)

    def end(self, lanes: Array, step: int, living: Array) -> None:
        """Handles the end of lanes at a step, which the barrier no longer waits for.

        `living` counts those left per block slot.
        """
        order = self._machine.order
        if order is not None and order.clusters is not None:
            slots = np.unique(self._machine.lanes.slot[lanes])
            for slot in slots[living[slots] == 0]:
                order.clusters.report_early_end(self._machine, int(slot))
        if self._present:
            self._ended_at[lanes] = np.where(self._arrived[lanes], -1, step)
            self._arrived[lanes] = False
            self._release()

    def _release(self) -> None:
        """Completes the phase of clusters all of whose threads have arrived."""
        machine = self._machine
        arrived = np.bincount(self._cluster[self._arrived], minlength=self._count)
        done = (arrived > 0) & (arrived == np.bincount(self._cluster[machine.live], minlength=self._count))
        if not done.any():
            return
        members = done[self._cluster]
        self._report_split(members & self._arrived)
        self._report_detours(members)
        self._arrived[members] = False
        slots = np.repeat(done, machine.lanes.cluster_blocks)
        machine.changes += 1
        machine.barriers += int(np.count_nonzero(slots))
        if machine.order is not None and machine.order.clusters is not None:
            machine.order.clusters.complete(slots)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            going = members[one.lanes]
            if not going.all():
                self._waiting.append(_WaitingGroup(one.barrier, one.key, one.lanes[~going]))
            if going.any():
                self._pass(one.key, one.lanes[going])

    def _report_split(self, members: Array) -> None:
        """Reports warps whose threads have arrived by different instructions, one of them aligned."""
        aligned = [step for step, barrier in self._barriers.items() if barrier.operation.aligned]
        if not aligned:
            return
        at, here = self._arrived_at.reshape(-1, 32), members.reshape(-1, 32)
        mixed = np.where(here, at, -1).max(axis=1) != np.where(here, at, np.iinfo(np.int32).max).min(axis=1)
        split = np.flatnonzero(np.repeat(mixed, 32) & members & np.isin(self._arrived_at, aligned))
        if split.size:
            barrier = self._barriers[int(self._arrived_at[split[0]])]
            self._report(
                barrier, split, "arrives at an aligned barrier of its cluster without the other threads of its warp"
            )

    def _report_detours(self, members: Array) -> None:
        """Reports threads of clusters that wait for threads which have ended without arriving."""
        for step, barrier in self._barriers.items():
            if not barrier.detours:
                continue
            around = members & np.isin(self._ended_at, list(barrier.detours))
            if not around.any():
                continue
            here = members & self._arrived & (self._arrived_at == step)
            stranded = np.flatnonzero(here & np.isin(self._cluster, self._cluster[around]))
            self._report(
                barrier,
                stranded,
                "waits for the barrier of its cluster, which other threads of the cluster bypass: they run the code after "
                "it, and end",
            )

    def _report(self, barrier: BoundClusterBarrier, lanes: Array, text: str) -> None:
        if lanes.size:
            self._machine.findings.report(FindingCode.DIVERGENT_BARRIER, barrier.position, lanes, lambda: text)

    def report_deadlock(self) -> None:
        """Reports threads that wait for ever."""
        machine = self._machine
        for one in self._waiting:
            cluster = self._cluster[one.lanes[0]]
            there = int(np.count_nonzero(self._arrived[self._cluster == cluster]))
            need = int(np.count_nonzero(machine.live[self._cluster == cluster]))
            self._report(
                one.barrier,
                one.lanes,
                f"waits for ever for the barrier of its cluster, at which {there} of {need} threads arrive",
            )
