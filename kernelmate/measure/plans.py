"""Launch counts of a timing run: planned from the cost of a few trial launches and the time budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LONG_US = 1e6
"""Kernel time in microseconds from which launches are as few as an interval allows, and only with warm L2."""

BLOCKS, FEWEST_BLOCKS = 12, 6
"""Number of timing blocks, each with its own memory placement; the second is the minimum for small budgets."""

SLOW_US, SLOW_BLOCKS, LONG_BLOCKS = 20_000.0, 4, 2
"""Kernel time in microseconds from which fewer blocks are used, and their number from there and from `LONG_US` on.

With fewer than `blocks.BOOTSTRAP_FROM` blocks, Student's t gives the interval.
"""

ORDER = (0, 1, 1, 0, 1, 0, 0, 1)
"""Order of the two versions' launches in a block: it cancels linear and quadratic drift.

Its first half, A B B A, cancels linear drift.
"""

TURNS, FEWEST_TURNS = 4, 2
"""Turns of each version in a block; the second is the minimum for small budgets."""

MOST_LAUNCHES = 32
"""Maximum of timed launches per turn; it grows in proportion to a budget over `USUAL_BUDGET_US`."""

USUAL_BUDGET_US = 0.2e6

LEAD, LEAD_TO_US = 8, 200.0
"""Untimed launches at the head of a block, whose placement has just changed; for kernels up to the given time."""

WARM_UP, WARM_UP_TO_US = 2, 1_000.0
"""Untimed launches at the head of each turn, for kernels up to the given time; longer kernels warm L2 themselves."""

GRAPH_US, FEWEST_IN_GRAPH, MOST_IN_GRAPH = 1_000.0, 10, 500
"""Desired duration of a CUDA graph in microseconds (starting one costs about 10 us), and bounds of its number of launches."""

FEW_US, FEW_IN_GRAPH = 2_000.0, 3
"""Kernel time in microseconds from which a graph has few launches, and their number.

The gaps between launches are then under a thousandth of the time.
"""

PERIOD_ROUNDS = 7
COLD_LAUNCHES, FEWEST_COLD = 144, 5
WARM_SHARE, COLD_SHARE, PERIOD_SHARE = 0.55, 0.15, 0.3
"""Fractions of the budget for warm, cold and replay-period measurements if all are made."""


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The launches of a timing.

    Attributes:
        blocks: number of blocks.
        lead: untimed launches at the head of each block.
        turns: turns of each version in a block.
        warm_up: untimed launches at the head of each turn.
        counted: timed launches of each turn.
        cold: launches of each version with a cold L2; 0 for none.
        period_rounds: replays of each version's graph; 0 for none.
        in_graph: launches in each graph.
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
        """Returns the version of each launch in a block; every other block swaps the two versions."""
        turns = ORDER[: 2 * self.turns] if versions > 1 else (0,) * self.turns
        if versions > 1 and block % 2:
            turns = tuple(1 - version for version in turns)
        launches = tuple(version for version in turns for _ in range(self.warm_up + self.counted))
        return turns[:1] * self.lead + launches

    def counts(self, position: int) -> bool:
        """Returns True if the launch at a position of the order is timed."""
        after_lead = position - self.lead
        return after_lead >= 0 and after_lead % (self.warm_up + self.counted) >= self.warm_up


def plan(times_us: Sequence[float], cost_us: float, budget_us: float, *, flush_us: float, full: bool) -> TimingPlan:
    """Plan the launches that a budget allows.

    Args:
        times_us: approximate duration of a launch of each version.
        cost_us: average cost of a launch, host overhead included.
        budget_us: the whole budget.
        flush_us: cost of emptying L2.
        full: also plan cold launches and replay periods.
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
    """Returns the number of launches in a graph of a version with the given time; one for very long kernels."""
    wanted = math.ceil(GRAPH_US / max(time_us, 0.1))
    fewest = FEWEST_IN_GRAPH if time_us < FEW_US else FEW_IN_GRAPH if time_us < SLOW_US else 1
    return max(fewest, min(MOST_IN_GRAPH, wanted))


def _affordable(budget: float, cost: float, fewest: int, most: int) -> int:
    return max(fewest, min(most, int(budget / cost)))
