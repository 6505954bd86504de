"""Number of launches of a timing: decided by the cost of a few launches and the budget, before the first that counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LONG_US = 1e6
"""From here on a kernel is launched as rarely as an interval allows, and warm only."""

BLOCKS, FEWEST_BLOCKS = 12, 6
"""Blocks of a timing, each in a placement of its own, and those it has where the budget does not reach for more."""

SLOW_US, SLOW_BLOCKS, LONG_BLOCKS = 20_000.0, 4, 2
"""From so many microseconds on there are fewer blocks still; Student's t makes the interval of them wider."""

ORDER = (0, 1, 1, 0, 1, 0, 0, 1)
"""Whose turn it is in a block: drifts that are straight or bent cancel. Half of it, A B B A, cancels straight ones."""

TURNS, FEWEST_TURNS = 4, 2
"""Times that each version has its turn in a block, and where the budget does not reach for more."""

MOST_LAUNCHES = 32
"""Counted launches of a turn at most, and in proportion more for a budget over `USUAL_BUDGET_US`."""

USUAL_BUDGET_US = 0.2e6

LEAD, LEAD_TO_US = 8, 200.0
"""Launches that are not counted at the head of a block, in whose placement nothing ran just before; of short kernels."""

WARM_UP, WARM_UP_TO_US = 2, 1_000.0
"""Launches that are not counted at the head of each turn, for kernels up to so long; longer ones warm L2 themselves."""

GRAPH_US, FEWEST_IN_GRAPH, MOST_IN_GRAPH = 1_000.0, 10, 500
"""A graph should take so long, since starting one costs about 10 us, and have so many launches."""

PERIOD_ROUNDS = 7
COLD_LAUNCHES, FEWEST_COLD = 144, 5
WARM_SHARE, COLD_SHARE, PERIOD_SHARE = 0.55, 0.15, 0.3
"""Parts of the budget where all of it is measured."""


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The launches of a timing.

    Attributes:
        blocks: how many. lead: launches at the head of each block that are not counted.
        turns: of each version in a block. warm_up: launches at the head of each turn that are not counted.
        counted: launches of each turn that are.
        cold: launches with an empty L2, for each version; 0 for none.
        period_rounds: replays of each version's graph; 0 for none. in_graph: launches in one, for each version.
    """

    blocks: int
    lead: int
    turns: int
    warm_up: int
    counted: int
    cold: int
    period_rounds: int
    in_graph: tuple[int, ...]

    def order(self, block: int, versions: int) -> tuple[int, ...]:
        """The versions of a block's launches; in every other block both versions change places."""
        turns = ORDER[: 2 * self.turns] if versions > 1 else (0,) * self.turns
        if versions > 1 and block % 2:
            turns = tuple(1 - version for version in turns)
        launches = tuple(version for version in turns for _ in range(self.warm_up + self.counted))
        return turns[:1] * self.lead + launches

    def counts(self, position: int) -> bool:
        """True if the launch at a place of the order is counted."""
        after_lead = position - self.lead
        return after_lead >= 0 and after_lead % (self.warm_up + self.counted) >= self.warm_up


def plan(times_us: Sequence[float], cost_us: float, budget_us: float, *, flush_us: float, full: bool) -> TimingPlan:
    """The launches that a budget allows.

    Args:
        times_us: about how long a launch of each version takes.
        cost_us: what a launch costs on average, making it included.
        budget_us: for everything.
        flush_us: what emptying L2 costs.
        full: with cold durations and replay periods.
    """
    longest, versions = max(times_us), len(times_us)
    warm_up, lead = WARM_UP if longest <= WARM_UP_TO_US else 0, LEAD if longest <= LEAD_TO_US else 0
    share = budget_us * (WARM_SHARE if full else 1.0)
    cost_us = max(cost_us, longest / versions)
    in_block = share / (cost_us * BLOCKS) - lead
    blocks, turns = BLOCKS, TURNS
    most = int(MOST_LAUNCHES * max(1.0, budget_us / USUAL_BUDGET_US))
    counted = min(int(in_block / (versions * turns)) - warm_up, most)
    if counted < 1:
        turns = FEWEST_TURNS
        counted = max(1, int(in_block / (versions * turns)) - warm_up)
        fewest = LONG_BLOCKS if longest >= LONG_US else SLOW_BLOCKS if longest >= SLOW_US else FEWEST_BLOCKS
        affordable = share / (cost_us * (versions * turns * (counted + warm_up) + lead))
        blocks = max(fewest, min(BLOCKS, int(affordable)))
    in_graph = tuple(graph_launches(one) for one in times_us)
    if not full or longest >= LONG_US:
        return TimingPlan(blocks, lead, turns, warm_up, counted, 0, 0, in_graph)
    cold = _affordable(budget_us * COLD_SHARE, (cost_us + flush_us) * versions, FEWEST_COLD, COLD_LAUNCHES)
    round_us = sum(launches * one for launches, one in zip(in_graph, times_us, strict=True)) + GRAPH_US
    rounds = _affordable(budget_us * PERIOD_SHARE, round_us, 3, PERIOD_ROUNDS)
    if longest >= SLOW_US:
        cold, rounds = 2, 2
    return TimingPlan(blocks, lead, turns, warm_up, counted, cold, rounds, in_graph)


def graph_launches(time_us: float) -> int:
    """Launches in a graph of a version that takes so long; one or two where it takes very long."""
    wanted = math.ceil(GRAPH_US / max(time_us, 0.1))
    fewest = FEWEST_IN_GRAPH if time_us < SLOW_US else 2
    return max(fewest, min(MOST_IN_GRAPH, wanted))


def _affordable(budget: float, cost: float, fewest: int, most: int) -> int:
    return max(fewest, min(most, int(budget / cost)))
