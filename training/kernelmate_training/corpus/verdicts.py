"""Verdicts on pairs: the better version against the other, by the rules that the product applies."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelmate.decide.acceptance import decide
from kernelmate.decide.objective import read_objective
from kernelmate.measure.statistics import EDITED, speedup
from kernelmate.records import Objective, Size, Speedup, Timing, Verdict

if TYPE_CHECKING:
    from kernelmate_training.corpus.groups import Pair
    from kernelmate_training.corpus.judging import Judged, Rounds

LEAST_GAIN = 1.02
"""A measured speed-up below this is left out: it would teach noise."""


def objective_of(pair: Pair) -> Objective:
    """Returns the objective of a pair's prompt."""
    return read_objective(pair.prompt, name=pair.metric)


def timing_of(rounds: Rounds, size: Size) -> Timing:
    """The time of some turns, with the size at which they were taken."""
    times = sorted(rounds.times_us)
    at = ", ".join(f"{name} = {value}" for name, value in size.items())
    note = f"period of {rounds.repeats} launches in a graph, at {at}"
    return Timing(
        "measured",
        statistics.median(times),
        (times[0], times[-1]),
        None,
        statistics.median(times),
        rounds.repeats * len(times),
        None,
        None,
        notes=(note,),
    )


def ratio_of(before: Rounds, after: Rounds) -> Speedup:
    """Returns the speed-up as median and range of the rounds.

    With seven rounds the range holds the median at 98 % (sign test).
    """
    ratios = sorted(one / other for one, other in zip(before.times_us, after.times_us, strict=True))
    return Speedup("measured", statistics.median(ratios), (ratios[0], ratios[-1]))


def held_together(
    before: Judged, after: Judged, pair: Pair, rounds: tuple[Rounds, Rounds] | None, size: Size
) -> Verdict:
    """The verdict of `after` against `before`, with the objective, a decision and reasons.

    Args:
        before: right.
        after: right as well.
        pair: says the objective.
        rounds: both, as measured in turns; None to go by predictions, where there are any.
        size: at which they were measured.
    """
    first, second = before.verdict, after.verdict
    ratio = None
    if rounds is not None:
        first = replace(first, timing=timing_of(rounds[0], size))
        second = replace(second, timing=timing_of(rounds[1], size))
        ratio = ratio_of(*rounds)
    elif first.timing is not None and second.timing is not None:
        ratio = speedup(first.timing, second.timing, EDITED)
    second = replace(second, speedup=ratio)
    # Counters at the listed sizes; times were taken elsewhere, and stand in the verdicts themselves.
    sizes = () if rounds is not None else (before.metrics, after.metrics)
    decision = decide(objective_of(pair), first, second, *sizes, error=EDITED)
    return replace(
        second,
        objective=decision.objective,
        accepted=decision.accepted,
        reasons=decision.reasons,
        trade_offs=decision.trade_offs,
    )


def worth_teaching(verdict: Verdict, metric: str) -> bool:
    """Accepted, or promising where nothing can be measured; and a measured time better by more than a hair."""
    if not verdict.worth_taking:
        return False
    ratio = verdict.speedup
    return metric != "time" or ratio is None or ratio.kind != "measured" or ratio.median >= LEAST_GAIN
