"""Order between the warps of a block by barriers with a thread count, which part of a block meets at.

Such a barrier orders the accesses of the warps that arrive before what the waiting warps do next; other warps of the block take no
part, and warps that arrive without waiting (`bar.arrive`) learn nothing. It counts whole warps, so that stamps are kept for pairs of
warps (PTX ISA, parallel synchronisation: bar, barrier).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.visibility import Known


@dataclass(frozen=True, slots=True)
class Arrival:
    """Lanes that arrived at a barrier.

    Attributes:
        lanes: the lanes, of one or more blocks.
        stamp: their earlier accesses have lower stamps, their later ones do not.
        warps: the warps of the lanes, ascending.
        known: by those warps and the warps of their block, up to which stamp the one knew the other on arrival.
        brought: by warp, what the lanes knew on arrival through memory.
    """

    lanes: Array
    stamp: int
    warps: Array
    known: Array
    brought: dict[int, Known]

    def of(self, chosen: Array) -> Arrival | None:
        """Returns the arrival of the chosen ones of its lanes, all of a block or none; None if there are none."""
        if chosen.all():
            return self
        if not chosen.any():
            return None
        lanes = self.lanes[chosen]
        kept = np.isin(self.warps, lanes >> 5)
        brought = {warp: known for warp, known in self.brought.items() if warp in self.warps[kept]}
        return Arrival(lanes, self.stamp, self.warps[kept], self.known[kept], brought)


class PartBarriers:
    """Stamps up to which warps of a batch know other warps of their block, by barriers of part of the block."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._width = lanes.width // 32
        self._known: Array | None = None  # by warp, and by the places of warps in its block

    def begin(self) -> None:
        """Starts a batch."""
        self._known = None

    def arrive(self, lanes: Array, stamp: int, brought: dict[int, Known]) -> Arrival:
        """Returns the arrival of lanes, whose later accesses have at least this stamp; `brought` as in `Arrival`."""
        warps = self._warps_of(lanes)
        if self._known is None:
            self._known = np.zeros((self._lanes.warps, self._width), np.int64)
        return Arrival(lanes, stamp, warps, self._known[warps], brought)

    def meet(self, arrivals: Sequence[Arrival], waiting: Array) -> None:
        """Records that lanes pass a barrier.

        Args:
            arrivals: of all lanes, the waiting ones among them, that arrived there.
            waiting: the lanes that waited.
        """
        assert self._known is not None, "a barrier is passed after arrivals"
        blocks = self._lanes.warps // self._width
        merged = np.zeros((blocks, self._width), np.int64)
        for arrival in arrivals:
            slots = arrival.warps // self._width
            np.maximum.at(merged, slots, arrival.known)
            np.maximum.at(merged, (slots, arrival.warps % self._width), arrival.stamp)
        warps = self._warps_of(waiting)
        self._known[warps] = np.maximum(self._known[warps], merged[warps // self._width])

    def _warps_of(self, lanes: Array) -> Array:
        return np.flatnonzero(np.bincount(lanes >> 5, minlength=self._lanes.warps))

    def knows(self, lanes: Array, threads: Array, stamps: Array) -> Array:
        """Returns for each access by a thread of a lane's own block whether the lane knows it.

        Args:
            lanes: the lanes whose knowledge is queried.
            threads: the indices of the accessing threads in the block; a schedule seed permutes the warps' places.
            stamps: the stamps of the accesses.
        """
        if self._known is None:
            return np.zeros(len(lanes), bool)
        places = self._lanes.lane_of_thread.take(threads >> 5 << 5) >> 5
        return np.asarray(stamps < self._known[lanes >> 5, places])

    def known_by(self, lane: int) -> Array | None:
        """Returns the stamps up to which a lane knows the lanes of its block, by their index; None where it knows none."""
        return None if self._known is None else np.repeat(self._known[lane >> 5], 32)
