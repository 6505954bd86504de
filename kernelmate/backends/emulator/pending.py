"""Which asynchronous copies a thread has waited for.

A copy of `cp.async` is a write to shared memory by its thread, without order to anything, that thread's own accesses
included, until the thread has waited for the copy's group. From then on it counts as written at the wait.
"""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.types import Array

NEVER = int(np.iinfo(np.int32).max)
"""Stamp of copies that are not complete."""


class Copies:
    """The groups of asynchronous copies of every lane of a batch.

    Groups are numbered per lane in the order in which they are committed; `open_group` is the one being collected.
    """

    def __init__(self, count: int) -> None:
        self.open_group = np.zeros(count, np.int32)
        self._finished = np.zeros(count, np.int32)
        self._done_at: list[Array] = []

    def begin(self) -> None:
        """Start a batch."""
        self.open_group.fill(0)
        self._finished.fill(0)
        self._done_at.clear()

    def commit(self, lanes: Array) -> None:
        """Lanes close their groups."""
        self.open_group[lanes] += 1

    def wait(self, lanes: Array, left: int, now: int) -> None:
        """Lanes wait until at most `left` of their committed groups are pending."""
        upto = np.maximum(self.open_group[lanes] - left, self._finished[lanes])
        while len(self._done_at) < int(upto.max()):
            self._done_at.append(np.full(len(self.open_group), NEVER, np.int32))
        for group in range(int(self._finished[lanes].min()), int(upto.max())):
            chosen = lanes[(upto > group) & (self._finished[lanes] <= group)]
            self._done_at[group][chosen] = now
        self._finished[lanes] = upto

    def done_at(self, lanes: Array, groups: Array) -> Array:
        """Returns the stamp at which the copies of a lane's group were awaited; `NEVER` if they were not."""
        found = np.full(len(lanes), NEVER, np.int64)
        for group in np.unique(groups):
            if group < len(self._done_at):
                chosen = groups == group
                found[chosen] = self._done_at[group][lanes[chosen]]
        return found
