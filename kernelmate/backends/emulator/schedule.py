"""Scheduler of a batch: selects the lanes that run, until all threads have ended.

Lanes at the same basic block run together. The block that is first in program order runs first, so that divergent lanes
reconverge at joins. A group that takes very many backward branches yields to others, so that a thread waiting for
another's store makes progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelmate.backends.emulator.barriers import Barriers, BoundBarrier
from kernelmate.backends.emulator.bound import BoundBlock, InstructionCounts, InstructionLimits
from kernelmate.backends.emulator.clusters import BoundClusterBarrier, ClusterBarriers
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.findings import LaunchStopped
from kernelmate.backends.emulator.jit.access_stamps import Suspicion
from kernelmate.backends.emulator.lanes import Group, compact
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.meter import ForwardProgress, Meter
from kernelmate.backends.emulator.operations import Branch, Exit, Trap
from kernelmate.backends.emulator.registers import spread
from kernelmate.backends.emulator.rendezvous import Rendezvous
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.warp import Gathering
from kernelmate.records import FindingCode

if TYPE_CHECKING:
    from kernelmate.backends.emulator.jit.native import Native


_DELAYED = 2
"""Rank of delayed lanes among those that wait for their turn: after the others (0) and the late ones (1)."""

_RANKS = 3
"""Number of these ranks. Keys of groups are `(level * _RANKS + rank) * blocks + block`: at level 0 all lanes of a rank
run together; lanes of a crowd that contends for memory are at higher levels, which run first.
"""

_CROWD = 4
"""Number of warps above which a group that repeats an atomic in a loop is halved, so that few of them contend at once."""


class Scheduler:
    """Runs batches of one launch."""

    def __init__(
        self, machine: Machine, decoded: DecodedKernel, blocks: list[BoundBlock], limits: InstructionLimits, tally: InstructionCounts,
        native: Native | None = None,
    ) -> None:  # fmt: skip
        self.machine = machine
        self.native = native
        self.blocks = blocks
        self.tally = tally
        self.progress = ForwardProgress(machine, decoded)
        self.meter = Meter(machine, limits, tally, None if native is None else native.lane_steps)
        self._pending: dict[int, Array] = {}
        self._yielded: set[int] = set()
        self._level = _RANKS * len(blocks)
        self._crowded = False
        self._living = 0
        self._per_block = np.zeros(machine.lanes.blocks, np.int64)
        self._barriers = Barriers(machine, self._per_block, self._put, watch_ends=bool(decoded.detours))
        together = any(isinstance(block.end, BoundClusterBarrier) for block in blocks)
        self._clusters = ClusterBarriers(machine, self._put, present=together)
        self._rendezvous = Rendezvous(machine, self._gathering_at, self._put)

    def run(self, lanes: Array) -> None:
        """Runs these lanes from the entry to their ends.

        Raises:
            LaunchStopped: the launch was stopped; the reason has been reported.
            Overrun: the total limit was reached.
            WorthCompiling: native code would have paid off by now.
            Suspicion: native code with checks has seen something suspicious.
        """
        machine = self.machine
        machine.some_ended = False
        self._living = len(lanes)
        if len(lanes) == machine.lanes.count:
            machine.live.fill(True)
            self._per_block.fill(machine.lanes.width)
        else:
            machine.live.fill(False)
            machine.live[lanes] = True
            self._per_block[:] = np.bincount(machine.lanes.slot[lanes], minlength=machine.lanes.blocks)
        self._pending.clear()
        self._yielded.clear()
        self._crowded = False
        self._rendezvous.reset()
        self._barriers.reset()
        self._clusters.reset()
        self.progress.reset()
        self.meter.begin()
        if self.native is not None:
            self.native.begin_batch()
        if machine.lanes.late.any():
            late = machine.lanes.late[lanes]
            for chosen, key in ((~late, 0), (late, len(self.blocks))):
                if chosen.any():
                    self._put(key, lanes[chosen])
        else:
            self._put(0, lanes)
        while True:
            if self._pending:
                key = self._next()
                if self._is_native(key):
                    self._run_native(key)
                else:
                    self._advance(key, self._pending.pop(key))
            elif not self._unlock():
                break
        self.meter.end()

    # ------------------------------------------------------------------------------------------ native

    def _is_native(self, key: int) -> bool:
        return self.native is not None and self.native.is_native(key % len(self.blocks))

    def _run_native(self, key: int) -> None:
        """Runs all groups that may run now; warps stop when a lane needs the scheduler."""
        native, count = self.native, len(self.blocks)
        assert native is not None
        base = key - key % count
        keys = [other for other in self._pending if base <= other < base + count and other not in self._yielded]
        groups = [(other - base, self._pending.pop(other)) for other in keys]
        standing = native.run(groups)
        self.meter.add_native(native.instructions, native.issued)
        places = native.places
        if native.watch is not None and any(places.again <= place < places.turned for place, _ in standing):
            raise Suspicion
        for place, lanes in standing:
            self.meter.look(self.blocks[place % places.pieces], lanes)
        for place, lanes in standing:
            if place < places.ended:
                self._put(base + place, lanes)
        for place, lanes in standing:
            if place >= places.ended:
                self._after_native(base, place, lanes)

    def _after_native(self, base: int, place: int, lanes: Array) -> None:
        """Handles lanes that native code has returned to the scheduler; see `layout.Places`."""
        assert self.native is not None
        kind, number = divmod(place, self.native.places.pieces)
        block = self.blocks[number]
        if kind == 3:
            self._look_around(block, base, number, lanes)
            return
        if kind == 4:
            assert block.gathering is not None
            lanes = self._gather(block.gathering, base + number, lanes)
            if not len(lanes):
                return
        if kind in {2, 4}:
            if block.block.contended:
                lanes = self._without_delayed(block, base + number, lanes)
                if not len(lanes):
                    return
            group, active = self._masks(lanes)
            self.meter.count(block, number, lanes)
            for operation in block.ready():
                operation(group, active)
            going = (number + 1, lanes) if block.end is None else self._finish(block, base, number, lanes)
        else:
            going = self._finish(block, base, number, lanes)
        if going is not None:
            self._put(base + going[0], going[1])

    # ---------------------------------------------------------------------------------------- choosing

    def _put(self, key: int, lanes: Array) -> None:
        there = self._pending.get(key)
        if there is not None:
            lanes = np.concatenate((there, lanes))
            lanes.sort()
        self._pending[key] = lanes

    def _first(self) -> int | None:
        """Returns the group first in program order among those of the highest level that have not just had a long turn."""
        if not self._yielded and not self._crowded:
            return min(self._pending)
        return min((key for key in self._pending if key not in self._yielded), key=self._order, default=None)

    def _order(self, key: int) -> tuple[int, int]:
        return -(key // self._level), key

    def _next(self) -> int:
        key = self._first()
        if key is None:
            self._yielded.clear()
            key = min(self._pending, key=self._order)
        return key

    def _masks(self, lanes: Array) -> tuple[Group | None, Group]:
        if len(lanes) == self.machine.lanes.count:
            return None, slice(0, len(lanes))
        if len(lanes) == self._living:
            return None, compact(lanes)
        group = compact(lanes)
        return group, group

    # ------------------------------------------------------------------------------------------ running

    def _advance(self, key: int, lanes: Array) -> None:
        """Runs a group until it ends, splits, waits, or another one precedes it."""
        base = key - key % len(self.blocks)
        number = key - base
        group, active = self._masks(lanes)
        while True:
            met = self._meet(base + number, lanes)
            if met is None:
                return
            if met is not lanes:
                lanes = met
                group, active = self._masks(lanes)
            block = self.blocks[number]
            entering = self._entering(block, base + number, lanes)
            if not len(entering):
                return
            if entering is not lanes:
                lanes = entering
                group, active = self._masks(lanes)
            self.meter.count(block, number, lanes)
            for operation in block.ready():
                operation(group, active)
            if block.end is None:
                number += 1
                continue
            going = self._finish(block, base, number, lanes)
            if going is None:
                return
            number, rest = going
            if rest is not lanes:
                lanes = rest
                group, active = self._masks(lanes)

    def _entering(self, block: BoundBlock, key: int, lanes: Array) -> Array:
        """Returns the lanes that execute a block now: waiting lanes may have replaced some of the requested ones."""
        if block.gathering is not None:
            return self._gather(block.gathering, key, lanes)
        return self._without_delayed(block, key, lanes) if block.block.contended else lanes

    def _without_delayed(self, block: BoundBlock, key: int, lanes: Array) -> Array:
        """Returns the lanes that execute a contended atomic now; the others execute it once these cannot continue."""
        contention, last = self.machine.contention, _DELAYED * len(self.blocks)
        if contention is None or not contention.delays or key >= last:
            return lanes
        delayed = contention.delayed(block.block.start, lanes)
        if delayed.any():
            self._put(last + key % len(self.blocks), lanes[delayed])
            lanes = lanes[~delayed]
        return lanes

    def _meet(self, here: int, lanes: Array) -> Array | None:
        """Merges the group with those waiting at its position; returns None if it was set aside itself."""
        if self._pending:
            first = self._first()
            if first is not None and self._order(first) < self._order(here):
                self._put(here, lanes)
                return None
            if here in self._pending:
                self._yielded.discard(here)
                lanes = np.concatenate((lanes, self._pending.pop(here)))
                lanes.sort()
        if self._is_native(here):
            self._put(here, lanes)
            return None
        return lanes

    # ----------------------------------------------------------------------------------------- block ends

    def _finish(self, block: BoundBlock, base: int, number: int, lanes: Array) -> tuple[int, Array] | None:
        """Returns the group's next block after the last step, and its lanes; None if there is none."""
        taken, staying = self._split(block, lanes)
        end = block.end
        if isinstance(end, Branch):
            return self._branch(block, base, number, taken, staying)
        if not len(taken):
            return number + 1, staying
        if isinstance(end, Exit):
            self._exit(taken, block.block.end - 1)
        elif isinstance(end, BoundBarrier):
            if len(taken) == self._living and not self._pending and self._barriers.passes_whole(end):
                self._barriers.report_detours(end, taken)
                self.machine.pass_barrier(self._per_block > 0, self._per_block > 0)
                return number + 1, taken
            if len(staying):
                self._put(base + number + 1, staying)
            self._barriers.arrive(end, base + number + 1, taken)
            return None
        elif isinstance(end, BoundClusterBarrier):
            if len(staying):
                self._put(base + number + 1, staying)
            self._clusters.meet(end, base + number + 1, taken)
            return None
        elif isinstance(end, Trap):
            self.machine.findings.report(FindingCode.TRAP, block.position, taken, lambda: end.reason)
            raise LaunchStopped
        else:
            self._jump_table(block, base, taken)
            if len(staying):
                self._put(base + number + 1, staying)
            return None
        return (number + 1, staying) if len(staying) else None

    @staticmethod
    def _split(block: BoundBlock, lanes: Array) -> tuple[Array, Array]:
        nobody = lanes[:0]
        if block.guard is None:
            return lanes, nobody
        holds = block.guard.array.take(lanes)
        if block.guard.negated:
            holds = ~holds
        count = int(np.count_nonzero(holds))
        if count == len(lanes):
            return lanes, nobody
        if count == 0:
            return nobody, lanes
        return lanes[holds], lanes[~holds]

    def _branch(
        self, block: BoundBlock, base: int, number: int, taken: Array, staying: Array
    ) -> tuple[int, Array] | None:
        target = block.targets[0]
        if not len(taken):
            return number + 1, staying
        if self.tally.branches is not None and len(staying):
            self.tally.branches.split(block.block.end - 1, taken, staying)
        if target <= number and block.block.retries and self._halve(base + target, taken):
            if len(staying):
                self._put(base + number + 1, staying)
            return None
        if target <= number and self.progress.turn_over(block.block.spins):
            self._look_around(block, base, number, taken)
            if len(staying):
                self._put(base + number + 1, staying)
            return None
        if not len(staying):
            return target, taken
        self._put(base + target, taken)
        self._put(base + number + 1, staying)
        return None

    def _look_around(self, block: BoundBlock, base: int, number: int, taken: Array) -> None:
        """Yields to others in a long loop, and checks whether it can still end."""
        key = base + block.targets[0]
        others = [other for other in self._pending if other != key]
        if self.progress.look(key, block.targets[0], number, taken) and all(map(self.progress.stuck, others)):
            self.meter.report_hang(block, taken, "loops for ever: nothing that the loop reads changes any more")
        self._put(key, taken)
        self._yielded.add(key)

    def _halve(self, key: int, lanes: Array) -> bool:
        """Moves half of the warps of a crowd to the next level, where they run before the others; False for few warps.

        If all threads of a launch repeat a compare-and-swap on one address, one of them succeeds in each round. A round of
        few threads costs less.
        """
        warps = np.unique(lanes >> 5)
        if len(warps) <= _CROWD:
            return False
        first = lanes >> 5 < warps[len(warps) // 2]
        self._crowded = True
        self._put(key, lanes[~first])
        self._put(key + self._level, lanes[first])
        return True

    def _jump_table(self, block: BoundBlock, base: int, lanes: Array) -> None:
        assert block.index is not None
        chosen = spread(block.index, lanes, len(lanes)).astype(np.int64)
        for entry in np.unique(chosen):
            if entry >= len(block.targets):
                self.machine.findings.report(
                    FindingCode.TRAP, block.position, lanes, lambda: "an indexed branch leaves its table"
                )
                raise LaunchStopped
            self._put(base + block.targets[int(entry)], lanes[chosen == entry])

    def _exit(self, lanes: Array, step: int) -> None:
        machine = self.machine
        self._barriers.end(lanes, step)
        machine.changes += 1
        machine.some_ended = True
        self._living -= len(lanes)
        if self._living:
            machine.live[lanes] = False
            self._per_block -= np.bincount(machine.lanes.slot[lanes], minlength=len(self._per_block))
        else:
            machine.live.fill(False)
            self._per_block.fill(0)
        if self._barriers:
            self._barriers.recheck()
        self._clusters.end(lanes, step, self._per_block)
        if self._rendezvous:
            self._rendezvous.recheck()

    def _unlock(self) -> bool:
        """Called when no group can run: reports the reason and resumes groups that can continue.

        Returns False when all have ended.
        """
        if self._rendezvous:
            self._rendezvous.unlock()
            return True
        if self._barriers or self._clusters:
            self._barriers.report_deadlock()
            self._clusters.report_deadlock()
            raise LaunchStopped
        return False

    def _gather(self, gathering: Gathering, key: int, lanes: Array) -> Array:
        # Late warps, whose keys lie above the others', meet them here; lanes of a warp that left a crowd meet the others.
        key %= len(self.blocks) if gathering.spans_warps else self._level
        return self._rendezvous.gather(gathering, key, lanes, everyone=len(lanes) == self._living)

    def _gathering_at(self, key: int) -> Gathering:
        gathering = self.blocks[key % len(self.blocks)].gathering
        assert gathering is not None
        return gathering
