"""Where the time of a launch comes from: time stamps, else replays of graphs, else events around launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from kernelmate.backends.timed import CannotCapture, Rig, Untraced
from kernelmate.measure.plans import graph_launches

Figure = Literal["duration", "replay", "events"]

SMALLEST_US = 0.001
"""What a difference of periods counts as where noise has made it zero or less."""

COLD_IN_GRAPH = 8
EVENTS_US = 200.0
"""Between two events there are so many launches that they take about this long."""


class Source(Protocol):
    """Gives each launch of an order its time, in microseconds.

    Attributes:
        figure: what kind of time. launches: how many launches one entry of an order stands for, for each version.
        words: what a reader must know of it; empty for durations.
    """

    figure: Figure
    launches: tuple[int, ...]
    words: tuple[str, ...]

    def times(self, order: Sequence[int]) -> Sequence[float]:
        """A time for each entry.

        Raises:
            Untraced: there are no time stamps any more.
        """
        ...

    def cold(self, order: Sequence[int]) -> Sequence[float] | None:
        """A time for each entry with an empty L2; None where that cannot be had."""
        ...


class Durations:
    """Time stamps of each launch."""

    figure: Figure = "duration"
    words: tuple[str, ...] = ()

    def __init__(self, rig: Rig) -> None:
        self._rig, self.launches = rig, (1,) * rig.versions

    def times(self, order: Sequence[int]) -> Sequence[float]:
        """Durations."""
        return self._rig.durations(order)

    def cold(self, order: Sequence[int]) -> Sequence[float] | None:
        """Durations after a flush of L2, whose own is left out."""
        return self._rig.durations(order, cold=True)


class Replays:
    """Periods of graphs, less that of an empty kernel's graph replayed just before.

    Raises:
        CannotCapture: a version cannot be part of a graph.
    """

    figure: Figure = "replay"

    def __init__(self, rig: Rig, why: str) -> None:
        self._rig = rig
        self.words: tuple[str, ...] = (f"{why}: the time is the replay period",)
        self.launches = tuple(graph_launches(rig.period(version, 2)) for version in range(rig.versions))

    def times(self, order: Sequence[int]) -> Sequence[float]:
        """Replays, one for each entry."""
        nothing = self._rig.period(None, max(self.launches))
        return [max(self._rig.period(one, self.launches[one]) - nothing, SMALLEST_US) for one in order]

    def cold(self, order: Sequence[int]) -> Sequence[float] | None:
        """Replays of graphs with a flush before each launch, less those of flushes and empty kernels."""
        nothing = self._rig.period(None, COLD_IN_GRAPH, cold=True)
        return [max(self._rig.period(one, COLD_IN_GRAPH, cold=True) - nothing, SMALLEST_US) for one in order]


class Events:
    """Time between two events around some launches: what launching costs is in it."""

    figure: Figure = "events"

    def __init__(self, rig: Rig, why: str) -> None:
        self._rig = rig
        self.words: tuple[str, ...] = (f"{why}: the time is that between two events, launching included",)
        times = [rig.elapsed(version, 1) for version in range(rig.versions)]
        self.launches = tuple(max(1, min(100, int(EVENTS_US / max(time, 1.0)))) for time in times)

    def times(self, order: Sequence[int]) -> Sequence[float]:
        """Launches between events, one time for each entry."""
        return [self._rig.elapsed(one, self.launches[one]) for one in order]

    def cold(self, order: Sequence[int]) -> Sequence[float] | None:
        """Nothing: a flush between the events would be most of the time."""
        return None


def best_source(rig: Rig, lost: Untraced | None = None) -> Source:
    """The best source that a rig has; `lost` is why time stamps, which it had, cannot be had any more."""
    why = rig.untraced if lost is None else str(lost)
    if why is None:
        return Durations(rig)
    try:
        return Replays(rig, why)
    except CannotCapture as refused:
        return Events(rig, f"{why}, and the launch cannot be captured in a graph ({refused})")
