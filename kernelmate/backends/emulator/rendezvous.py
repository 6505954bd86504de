"""Warp-level operations: lanes wait until all live lanes that their masks name have arrived."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from kernelmate.backends.emulator.barriers import Resume
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.warp import Gathering
from kernelmate.records import FindingCode


class Rendezvous:
    """The lanes of a batch that wait in warp operations, by the key of the operation's block.

    `gathering_at` returns a key's operation; `resume` receives released lanes.
    """

    def __init__(self, machine: Machine, gathering_at: Callable[[int], Gathering], resume: Resume) -> None:
        self._machine = machine
        self._gathering_at = gathering_at
        self._resume = resume
        self._waiting: dict[int, Array] = {}
        self._excused = np.zeros(machine.lanes.count, bool)
        self._any_excused = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def reset(self) -> None:
        """Clears all state, for a new batch."""
        self._waiting.clear()

    def gather(self, gathering: Gathering, key: int, lanes: Array, *, everyone: bool) -> Array:
        """Returns the lanes whose warps are complete; others wait until the missing lanes arrive or end.

        `everyone` is True if these are all live lanes.
        """
        if everyone and not self._any_excused:
            self._check_masks(gathering, lanes)
            return lanes
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            lanes = np.concatenate((lanes, waiting))
            lanes.sort()
        missing = gathering.missing(lanes)
        if self._any_excused:
            missing &= ~self._excused[lanes]
            self._excused[lanes] = False
            self._any_excused = bool(self._excused.any())
        if missing.any():
            self._waiting[key] = lanes[missing]
            lanes = lanes[~missing]
        if len(lanes):
            self._check_masks(gathering, lanes)
        return lanes

    def _check_masks(self, gathering: Gathering, lanes: Array) -> None:
        machine = self._machine
        outside = None if gathering.names_all else gathering.outside(lanes)
        if outside is not None and outside.any():
            machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                gathering.position,
                lanes[outside],
                lambda: "executes a warp operation whose mask does not name the thread itself",
            )
        if gathering.is_barrier or not machine.some_ended:
            return
        ended = gathering.ended(lanes)
        if ended.any():
            machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                gathering.position,
                lanes[ended],
                lambda: (
                    "executes a warp operation whose mask names threads that end without it; leave them out of the mask, "
                    "or let them end after it"
                ),
                severity="warning",
            )

    def recheck(self) -> bool:
        """Resumes lanes whose warps became complete because others ended; returns whether there are any."""
        moved = False
        for key, lanes in list(self._waiting.items()):
            missing = self._gathering_at(key).missing(lanes)
            if missing.all():
                continue
            del self._waiting[key]
            self._resume(key, lanes)
            moved = True
        return moved

    def unlock(self) -> None:
        """Called when no other lane can run: resumes lanes that are complete together, else reports and resumes them.

        Of warps that wait for other warps, only the first in program order are resumed: the others may meet them later.
        """
        if self.recheck() or self._meet_elsewhere():
            return
        first = min(self._waiting)
        for key in [first] if self._gathering_at(first).spans_warps else list(self._waiting):
            lanes, gathering = self._waiting.pop(key), self._gathering_at(key)
            self._machine.findings.report(
                FindingCode.SHUFFLE_MASK, gathering.position, lanes, partial(str, gathering.awaits)
            )
            self._excuse(key, lanes)

    def _meet_elsewhere(self) -> bool:
        """True if lanes of a warp may wait at different instructions of the same kind; together they are complete."""
        if len(self._waiting) < 2:
            return False
        everyone = np.sort(np.concatenate(list(self._waiting.values())))
        moved = False
        for key, lanes in list(self._waiting.items()):
            gathering = self._gathering_at(key)
            if not gathering.is_barrier:
                continue
            complete = ~gathering.missing(everyone)[np.searchsorted(everyone, lanes)]
            if complete.any():
                self._excuse(key, lanes[complete])
                moved = True
                if complete.all():
                    del self._waiting[key]
                else:
                    self._waiting[key] = lanes[~complete]
        return moved

    def _excuse(self, key: int, lanes: Array) -> None:
        """Resumes lanes in spite of missing ones."""
        self._excused[lanes] = True
        self._any_excused = True
        self._resume(key, lanes)
