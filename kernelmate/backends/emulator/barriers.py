"""Barriers of blocks and of parts of them: arrival of threads, and release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import Barrier
from kernelmate.backends.emulator.part_barriers import Arrival
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import ConstantOperand, Value, spread
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode

Resume = Callable[[int, Array], None]
"""Callback with the key at which lanes resume, and the lanes."""


@dataclass(frozen=True, slots=True)
class BoundBarrier:
    """A barrier instruction with its operands bound; `detours` are the steps at which threads end that bypassed it."""

    mode: str
    number: Value
    count: Value | None
    source: Value | None
    target: Array | None
    position: Position | None
    aligned: bool = True
    detours: Array | None = None


@dataclass(slots=True)
class _Parked:
    barrier: BoundBarrier
    key: int
    lanes: Array
    votes: Array | None


def bind_barrier(
    operation: Barrier, machine: Machine, position: Position | None, detours: frozenset[int] | None = None
) -> BoundBarrier:
    """Binds the operands of a barrier."""
    registers = machine.registers
    target = None
    if operation.result is not None:
        target = registers.target(operation.result, "b32" if operation.mode == "popc" else "pred")
    return BoundBarrier(
        operation.mode,
        registers.read(operation.number, "u32"),
        registers.read(operation.count, "u32") if operation.count is not None else None,
        registers.read(operation.source, "pred") if operation.source is not None else None,
        target,
        position,
        operation.aligned,
        None if detours is None else np.array(sorted(detours)),
    )


class Barriers:
    """The barrier resources of all blocks of a batch.

    `expected` is the number of live threads per block slot, maintained by the scheduler; `resume` receives released
    lanes. With `watch_ends`, threads that end after bypassing a barrier are distinguished from those that return early.
    """

    def __init__(self, machine: Machine, expected: Array, resume: Resume, *, watch_ends: bool = False) -> None:
        self._machine = machine
        self._expected = expected
        self._resume = resume
        self._parked: dict[int, list[_Parked]] = {}
        self._arrived: dict[int, Array] = {}
        self._wanted: dict[int, Array] = {}
        self._arrivals: dict[int, list[Arrival]] = {}  # at all barriers but plain ones of number 0
        lanes = machine.lanes
        self._threads = np.bincount(lanes.slot[lanes.real], minlength=lanes.blocks)
        self._ended_at = np.full(machine.lanes.count, -1, np.int64) if watch_ends else None

    def __bool__(self) -> bool:
        return any(self._parked.values())

    def reset(self) -> None:
        """Clears all state, for a new batch."""
        self._parked.clear()
        self._arrived.clear()
        self._wanted.clear()
        self._arrivals.clear()
        if self._ended_at is not None:
            self._ended_at.fill(-1)

    def end(self, lanes: Array, step: int) -> None:
        """Records that lanes end at a step."""
        if self._ended_at is not None:
            self._ended_at[lanes] = step

    def arrive(self, barrier: BoundBarrier, key: int, lanes: Array) -> None:
        """Registers lanes at a barrier; `key` is their resume point. Lanes that need not wait are resumed at once."""
        numbers = spread(barrier.number, lanes, len(lanes))
        if (numbers == numbers[0]).all():
            self._arrive_one(int(numbers[0]), barrier, key, lanes)
            return
        for number in np.unique(numbers):
            self._arrive_one(int(number), barrier, key, lanes[numbers == number])

    def _arrive_one(self, number: int, barrier: BoundBarrier, key: int, lanes: Array) -> None:
        slots = self._machine.lanes.slot[lanes]
        blocks = len(self._expected)
        arrived = self._arrived.setdefault(number, np.zeros(blocks, np.int64))
        wanted = self._wanted.setdefault(number, np.full(blocks, -1, np.int64))
        arrived += np.bincount(slots, minlength=blocks)
        if barrier.count is not None:
            wanted[slots] = spread(barrier.count, lanes, len(lanes))
        if self._machine.order is not None and (barrier.count is not None or number):
            # Threads without a count, for all of the block, may meet others that arrive with one.
            self._arrivals.setdefault(number, []).append(self._machine.order.arrive(lanes))
        if barrier.mode == "arrive":
            self._resume(key, lanes)
        else:
            votes = spread(barrier.source, lanes, len(lanes)) if barrier.source is not None else None
            self._parked.setdefault(number, []).append(_Parked(barrier, key, lanes, votes))
        self._release(number)

    def recheck(self) -> None:
        """Releases blocks that waited only for threads that have ended."""
        for number in list(self._parked):
            self._release(number)

    def _release(self, number: int) -> None:
        arrived, wanted = self._arrived[number], self._wanted[number]
        ready = (arrived > 0) & (arrived >= np.where(wanted < 0, self._expected, wanted))
        if not ready.any():
            return
        machine = self._machine
        plain = ready & (wanted < 0)
        arrived[ready] = 0
        wanted[ready] = -1
        kept: list[_Parked] = []
        leaving: list[_Parked] = []
        for parked in self._parked.get(number, ()):
            going = ready[machine.lanes.slot[parked.lanes]]
            for chosen, group in ((going, leaving), (~going, kept)):
                if chosen.all():
                    group.append(parked)
                elif chosen.any():
                    votes = None if parked.votes is None else parked.votes[chosen]
                    group.append(_Parked(parked.barrier, parked.key, parked.lanes[chosen], votes))
        self._parked[number] = kept
        self._pass(number, ready, plain, leaving)
        self._report_split(leaving, plain)
        for parked in leaving:
            self.report_detours(parked.barrier, parked.lanes)
        self._report_partial(leaving)
        self._reduce(leaving)
        for parked in leaving:
            self._resume(parked.key, parked.lanes)

    def _pass(self, number: int, ready: Array, plain: Array, leaving: list[_Parked]) -> None:
        """Records that blocks pass a barrier, all of their threads or only those that arrived; `plain` ones have no thread count."""
        machine, slots = self._machine, self._machine.lanes.slot
        waiting = np.concatenate([parked.lanes for parked in leaving]) if leaving else slots[:0]
        whole = plain | (ready & (np.bincount(slots[waiting], minlength=len(ready)) == self._threads))
        machine.pass_barrier(ready, whole)
        arrivals, self._arrivals[number] = self._arrivals.get(number, []), []
        if machine.order is None or not arrivals:
            return
        part = ready & ~whole
        if (learning := waiting[part[slots[waiting]]]).size:
            machine.order.part_barrier(
                [one for arrival in arrivals if (one := arrival.of(part[slots[arrival.lanes]])) is not None], learning
            )
        self._arrivals[number] = [
            one for arrival in arrivals if (one := arrival.of(~ready[slots[arrival.lanes]])) is not None
        ]

    def _report_split(self, leaving: list[_Parked], plain: Array) -> None:
        """Reports blocks whose threads meet at different barriers of the source, which hardware cannot distinguish."""
        by_place: dict[Position | None, list[_Parked]] = {}
        for parked in leaving:
            by_place.setdefault(parked.barrier.position, []).append(parked)
        if len(by_place) < 2:
            return
        slot = self._machine.lanes.slot
        (first, *_), *others = by_place.values()
        split = plain & (np.bincount(slot[first.lanes], minlength=len(plain)) > 0)
        for parked in (one for group in others for one in group):
            lanes = parked.lanes[split[slot[parked.lanes]]]
            if lanes.size:
                self._machine.findings.report(
                    FindingCode.DIVERGENT_BARRIER,
                    parked.barrier.position,
                    lanes,
                    lambda: "waits at this barrier while other threads of the block wait at another one",
                )

    def report_detours(self, barrier: BoundBarrier, lanes: Array) -> None:
        """Reports lanes that leave a barrier which other threads of their block bypassed before they ended."""
        if self._ended_at is None or barrier.detours is None or barrier.count is not None:
            return
        slot = self._machine.lanes.slot
        around = np.isin(self._ended_at, barrier.detours)
        stranded = lanes[np.isin(slot[lanes], slot[around])]
        if stranded.size:
            self._machine.findings.report(
                FindingCode.DIVERGENT_BARRIER,
                barrier.position,
                stranded,
                lambda: (
                    "waits at this barrier, which other threads of the block bypass: they run the code after it, and end"
                ),
            )

    def _report_partial(self, leaving: list[_Parked]) -> None:
        """Reports warps that arrive only in part at a barrier with a thread count, which counts whole warps."""
        for parked in leaving:
            if not parked.barrier.aligned or parked.barrier.count is None:
                continue
            warps = len(self._machine.live) // 32
            here = np.bincount(parked.lanes // 32, minlength=warps)
            living = self._machine.live.reshape(warps, 32).sum(axis=1)
            partial = parked.lanes[((here > 0) & (here < living))[parked.lanes // 32]]
            if partial.size:
                self._machine.findings.report(
                    FindingCode.DIVERGENT_BARRIER,
                    parked.barrier.position,
                    partial,
                    lambda: (
                        "waits at this barrier without the other threads of its warp; with a thread count, it counts whole warps"
                    ),
                )

    def _reduce(self, leaving: list[_Parked]) -> None:
        """Gives every lane its block's vote, if the barrier is a reduction."""
        voting = [parked for parked in leaving if parked.votes is not None]
        if not voting:
            return
        slot = self._machine.lanes.slot
        slots = np.concatenate([slot[parked.lanes] for parked in voting])
        votes = np.concatenate([parked.votes for parked in voting if parked.votes is not None])
        blocks = len(self._expected)
        yes = np.bincount(slots[votes], minlength=blocks)
        everyone = np.bincount(slots, minlength=blocks)
        for parked in voting:
            mine = slot[parked.lanes]
            result = {"popc": yes, "and": yes == everyone, "or": yes > 0}[parked.barrier.mode][mine]
            if parked.barrier.target is not None:
                parked.barrier.target[parked.lanes] = result

    def report_deadlock(self) -> None:
        """Reports threads that wait for ever."""
        machine = self._machine
        for number, group in self._parked.items():
            for parked in group:
                block = machine.lanes.slot[parked.lanes[0]]
                there = int(self._arrived[number][block])
                wanted = int(self._wanted[number][block])
                need = wanted if wanted >= 0 else int(self._expected[block])
                machine.findings.report(
                    FindingCode.DIVERGENT_BARRIER,
                    parked.barrier.position,
                    parked.lanes,
                    lambda there=there, need=need: (
                        f"waits for ever at a barrier that {there} of {need} threads of the block reach"
                    ),  # type: ignore[misc]
                )

    def passes_whole(self, barrier: BoundBarrier) -> bool:
        """Returns True for the plain barrier of all threads if no thread waits elsewhere."""
        return (
            barrier.mode == "sync"
            and barrier.count is None
            and isinstance(barrier.number, ConstantOperand)
            and not self
        )
