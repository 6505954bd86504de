"""Time budget of a search, and the estimate whether another evaluation fits into the rest of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

Step: TypeAlias = Literal["quick", "full", "slow", "final"]
"""A quick evaluation; a full verdict; one on a kernel that the emulator has no native code for; the last verdict on the best version, by
a fresh process on other inputs."""

RECENT = 3
"""The longest of this many recent evaluations is the estimate for the next one of its kind."""

SLOW_FACTOR = 3.0
"""Initial estimate of a slow verdict, relative to others: 11.5 s beside 3.5 s for matrix products with and without tensor cores."""

WARM_SHARE = 0.5
"""Initial estimate of a candidate's evaluation, as a fraction of the kernel's own verdict, which may have included starting the worker and computing the reference."""


LEAST_S = 1.0
"""Shortest time limit of an evaluation, in seconds."""

OVERRUN = 0.1
"""Fraction of a budget by which an evaluation that takes longer than expected may exceed it before it is ended."""

FIRST_SHARE = 0.5
"""Fraction of a budget that the first evaluation may take even if the kernel's own verdict has used the budget up."""


class TimeBudget:
    """Time budget of a search, with the durations of its evaluations.

    Args:
        limit_s: seconds that the search may take, None for no limit.
        baseline_s: seconds that the kernel's own verdict took.
        began: start of the search, by `clock`; None for now.
        clock: returns seconds.
    """

    def __init__(
        self,
        limit_s: float | None,
        baseline_s: float = 0.0,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._began = clock() if began is None else began
        self._first_s = WARM_SHARE * baseline_s
        self._seen: dict[Step, deque[float]] = {kind: deque(maxlen=RECENT) for kind in get_args(Step)}

    def elapsed_s(self) -> float:
        """Returns the seconds since the search started."""
        return self._clock() - self._began

    @contextmanager
    def spent_on(self, kind: Step) -> Iterator[None]:
        """Context manager for one evaluation of this kind; its duration becomes an estimate for later ones."""
        began = self._clock()
        yield
        self._seen[kind].append(self._clock() - began)

    def fits(self, *kinds: Step) -> bool:
        """Returns True if these evaluations, one after the other, are expected to end in time."""
        if self.limit_s is None:
            return True
        return self.elapsed_s() + sum(self._expected_s(kind) for kind in kinds) <= self.limit_s

    def allowed_s(self, *after: Step, first: bool = False) -> float | None:
        """Returns the seconds after which the next evaluation is ended, None for no limit.

        Args:
            after: evaluations that are to follow it.
            first: True if nothing has been evaluated, so that a version is tried although the time is used up.
        """
        if self.limit_s is None:
            return None
        left = (1 + OVERRUN) * self.limit_s - self.elapsed_s() - sum(self._expected_s(kind) for kind in after)
        return max(left, FIRST_SHARE * self.limit_s if first else 0.0, LEAST_S)

    def _expected_s(self, kind: Step) -> float:
        seen = self._seen[kind]
        if seen:
            return max(seen)
        if kind == "quick":
            return 0.0
        if kind == "slow":
            return SLOW_FACTOR * self._expected_s("full")
        return self._first_s if kind == "full" else max(self._first_s, self._expected_s("full"))
