"""Verdicts on pairs: the better version compared with the other, by the product's rules."""

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
"""Smallest measured speed-up of a row; smaller ones may be noise."""


def objective_of(pair: Pair) -> Objective:
    """Returns the objective of a pair's prompt."""
    return read_objective(pair.prompt, name=pair.metric)


def timing_of(rounds: Rounds, size: Size) -> Timing:
    """Returns the timing of some rounds, with the size at which they were taken."""
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

    The range of seven rounds contains the median in 98 % of cases (sign test).
    """
    ratios = sorted(one / other for one, other in zip(before.times_us, after.times_us, strict=True))
    return Speedup("measured", statistics.median(ratios), (ratios[0], ratios[-1]))


def held_together(
    before: Judged, after: Judged, pair: Pair, rounds: tuple[Rounds, Rounds] | None, size: Size
) -> Verdict:
    """Returns the verdict of `after` compared with `before`, with the objective, the decision and the reasons.

    Args:
        before: a correct version.
        after: another correct version.
        pair: the pair, which gives the objective.
        rounds: timings of both in alternating rounds; None to use predictions, if there are any.
        size: the size of the timings.
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
    # Counters are of the listed sizes; times are of another size, and are in the verdicts.
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
    """Returns True if a verdict is accepted, or promising without measurements.

    A measured time must gain `LEAST_GAIN`.
    """
    if not verdict.worth_taking:
        return False
    ratio = verdict.speedup
    return metric != "time" or ratio is None or ratio.kind != "measured" or ratio.median >= LEAST_GAIN
