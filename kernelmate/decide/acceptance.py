"""Acceptance of candidates: the objective met beyond its noise, and nothing else made worse beyond its limit.

For time, the headline size decides, or the weighted geometric mean over the sizes if the contract has `weights`. No
other listed size may get slower by more than the contract's `slowdown`; sizes of weight 0, and without weights sizes
dominated by launch overhead, are reported but never reject.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernelmate.decide.metrics import METRICS, WORDS, better, format_value, global_bytes, metric_value
from kernelmate.decide.times import (
    SizeTimes,
    mean_by_weights,
    mean_us,
    median_us,
    mostly_launching,
    never_vetoes,
    pair_sizes,
    times_at,
)
from kernelmate.measure.statistics import ANY, RatioError, faster, show, slower, undecided
from kernelmate.records import (
    SLOWDOWN,
    Contract,
    MetricName,
    Objective,
    ObjectiveResult,
    SizeMetrics,
    Speedup,
    Verdict,
)

Basis = Literal["measured", "counted", "predicted"]


@dataclass(frozen=True, slots=True)
class Limit:
    """Allowed deterioration of a metric, as a fraction of the baseline's value; None is unlimited.

    `reason` explains it.
    """

    fraction: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a candidate.

    `accepted` is None if nothing rejects the candidate but the evidence does not suffice: a predicted time
    (`objective.met` is None too if the prediction's error hides the gain), a guessed contract, or no reference.
    `trade_offs` are sentences about metrics that got worse within their limits. `times` are both versions' times at
    each listed size. `speedup` is weighted by the contract's weights; None without weights, or if a size has no ratio.
    """

    objective: ObjectiveResult | None
    accepted: bool | None
    reasons: tuple[str, ...]
    trade_offs: tuple[str, ...] = ()
    times: tuple[SizeTimes, ...] = ()
    speedup: Speedup | None = None


NOISE: Mapping[MetricName, float] = {
    "time": 0.0,
    "shared_bytes": 0.0,
    "registers": 0.0,
    "local_bytes": 0.0,
    "global_bytes": 0.005,
    "occupancy": 0.0,
    "accuracy": 0.02,
}
"""Fraction by which a metric must improve to count as improved.

Times have confidence intervals of their own; the compiler's figures and occupancy have no noise; sector counts vary
with buffer addresses; errors vary with the order of additions among threads.
"""

LEAST_GAIN = 1.02
"""Lower bound that the 95% interval of a measured speedup must reach for a version to count as faster."""

TOLD = 0.02
"""Smallest rise of a predicted time, as a fraction, that is reported even if it is within the prediction's error."""

TOLD_ERROR = 0.1
"""Error, in tolerances, above which an error larger than the baseline's is reported as a trade-off."""

KEPT = 0.02
"""Allowed slowdown, beyond its interval, of a version whose objective cannot be measured."""

MEANS = "a means to speed, which is what was asked for"
DEFAULT_LIMITS: Mapping[Literal["time", "counted"], Mapping[MetricName, Limit]] = {
    "time": {
        "time": Limit(SLOWDOWN, "the contract's `slowdown` of a listed size, beyond the interval"),
        "shared_bytes": Limit(None, MEANS),
        "registers": Limit(None, MEANS),
        "local_bytes": Limit(None, MEANS),
        "global_bytes": Limit(None, MEANS),
        "occupancy": Limit(None, MEANS),
        "accuracy": Limit(None, "the tolerance is the limit"),
    },
    "counted": {
        "time": Limit(SLOWDOWN, "the contract's `slowdown` of a listed size, beyond the interval"),
        "shared_bytes": Limit(None, "costs nothing until it lowers occupancy, which has its own limit"),
        "registers": Limit(None, "cost nothing until they lower occupancy, which has its own limit"),
        "local_bytes": Limit(0.0, "spilled values are memory traffic that no counter of the emulator shows"),
        "global_bytes": Limit(0.05, "a saving on chip that moves more through DRAM is not accepted"),
        "occupancy": Limit(0.10, "fewer warps hide less latency"),
        "accuracy": Limit(None, "the tolerance is the limit"),
    },
}
"""Allowed deterioration of each metric: `time` if time is the objective, `counted` for any other objective.

An objective's own `limits` ("without using more shared memory") take precedence, as does a contract's `slowdown` for
time.
"""


def decide(
    objective: Objective | None,
    baseline: Verdict | None,
    candidate: Verdict,
    baseline_sizes: Sequence[SizeMetrics] = (),
    candidate_sizes: Sequence[SizeMetrics] = (),
    *,
    contract: Contract | None = None,
    error: RatioError = ANY,
) -> Decision:
    """Decide whether a candidate is accepted.

    Args:
        objective: the objective; None requires only a correct kernel without findings.
        baseline: the original kernel's verdict; None only without an objective.
        candidate: the candidate's verdict; its `objective`, `accepted` and `reasons` are ignored.
        baseline_sizes: counts and times of the baseline at every listed size.
        candidate_sizes: likewise of the candidate.
        contract: source of weights and `slowdown`; with an inferred contract a candidate is at most promising. None
            means no weights and the default slowdown.
        error: error factor of the predicted speedup.
    """
    broken = tuple(_broken(candidate))
    result: ObjectiveResult | None = None
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    traded: tuple[str, ...] = ()
    times = () if baseline is None else times_at(baseline, candidate, baseline_sizes, candidate_sizes, contract, error)
    mean = mean_by_weights(times)
    if objective is not None and baseline is not None:
        result, unmet, notes = _meets(objective, baseline, candidate, times)
        if not broken and objective.metric != "correct":
            slowdown = SLOWDOWN if contract is None else contract.slowdown
            broken, traded = _made_worse(
                objective, baseline, candidate, pair_sizes(baseline_sizes, candidate_sizes), times, slowdown
            )
    if broken or unmet:
        hint: tuple[str, ...] = ()
        if contract is not None and not contract.weights and not unmet:
            alone = replace(contract, weights=(1.0, *(0.0 for _ in contract.sizes[1:])))
            if decide(
                objective, baseline, candidate, baseline_sizes, candidate_sizes, contract=alone, error=error
            ).accepted:
                weights = ", ".join(f"{weight:g}" for weight in alone.weights)
                hint = (
                    f"{'; '.join(notes)} at the first size, which alone decides with `weights = [{weights}]` in the contract",
                )
        return Decision(result, False, broken + unmet + hint, traded, times, mean)
    doubts = tuple(_doubts(candidate, result, contract is not None and contract.inferred))
    if result is not None and result.basis == "predicted" and result.met is None:
        return Decision(result, None, notes + doubts, traded, times, mean)
    return Decision(result, None if doubts else True, doubts + notes, traded, times, mean)


def _broken(verdict: Verdict) -> Iterator[str]:
    if not verdict.compiled and not verdict.unsupported:
        first = next((d.message for d in verdict.diagnostics if d.severity == "error"), None)
        yield f"does not compile: {first}" if first else "does not compile"
        return
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    yield from dict.fromkeys(f"{finding.code}: {finding.message}" for finding in errors)
    if verdict.correct is False and not errors:
        wrong = next((case for case in verdict.cases if case.correct is False), None)
        at = "" if wrong is None else " at " + ", ".join(f"{name}={value}" for name, value in wrong.size.items())
        yield f"wrong values{at}"


def _doubts(verdict: Verdict, result: ObjectiveResult | None, inferred: bool) -> Iterator[str]:
    if result is not None and result.basis == "predicted" and result.met:
        yield f"the time is predicted for {verdict.target}, not measured: promising, confirm on a GPU"
    if inferred:
        yield "judged with a guessed contract: write it into the file to have anything accepted"
    if verdict.correct is None:
        lift = "" if verdict.compared else "; kernelmate lift may read one from the kernel"
        yield f"{not_shown_right(verdict)}{lift}"


def not_shown_right(verdict: Verdict) -> str:
    """Returns the sentence for a version that is neither right nor wrong, with the remedy."""
    if verdict.compared:
        return (
            "nothing shows that it is right: name other sizes or inputs, at which its result differs from a trivial one"
        )
    return "nothing shows that it is right: give the contract a reference"


def _meets(
    objective: Objective, baseline: Verdict, candidate: Verdict, times: Sequence[SizeTimes]
) -> tuple[ObjectiveResult, tuple[str, ...], tuple[str, ...]]:
    """Returns the objective's result, the reasons for not meeting it (empty when met), and remarks."""
    metric = objective.metric
    before, after = metric_value(metric, baseline), metric_value(metric, candidate)
    if metric == "time":
        return _meets_time(times, keep=objective.keep)
    if metric == "correct":
        met = None if after is None else bool(after) and not before
        return ObjectiveResult(metric, "measured", before, after, met), (), ()
    basis: Basis = "measured" if metric == "accuracy" else "counted"
    if before is None or after is None:
        of = "the baseline" if before is None else "this version"
        reason = f"the {WORDS[metric]} of {of} is not known, so it cannot be compared"
        return ObjectiveResult(metric, basis, before, after, None), (reason,), ()
    gain = before - after if better(metric) == "lower" else after - before
    met = gain > NOISE[metric] * abs(before)
    words = f"{WORDS[metric]}: {format_value(metric, before)} before, {format_value(metric, after)} after"
    unmet = () if met else (f"not what was asked for: {words}",)
    return ObjectiveResult(metric, basis, before, after, met), unmet, ()


def _meets_time(times: Sequence[SizeTimes], *, keep: bool) -> tuple[ObjectiveResult, tuple[str, ...], tuple[str, ...]]:
    """Returns the result of a time objective: met if the headline, or the weighted mean, is faster.

    With `keep`, the objective is also met if the time is not worse.
    """
    headline = next(one for one in times if one.headline)
    weighted = any(one.weight for one in times)
    ratio = mean_by_weights(times) if weighted else headline.ratio
    kind = None if headline.after is None else headline.after.kind
    basis: Basis = "measured" if kind == "measured" else "predicted"
    before, after = (mean_us(times, of) if weighted else median_us(headline, of) for of in ("before", "after"))
    if before is None or after is None or ratio is None:
        result = ObjectiveResult("time", basis, before, after, None, weighted)
        return result, ("the two versions have no times that can be compared",), ()
    met: bool | None = faster(ratio)
    if keep:
        met = not slower(ratio, KEPT)
    elif basis == "measured":
        met = ratio.ci95[0] >= LEAST_GAIN
    elif undecided(ratio):
        met = None
    result = ObjectiveResult("time", basis, before, after, met, weighted)
    words = f"{basis} {show(ratio)}"
    by = " by the contract's weights" if weighted else ""
    if met:
        return result, (), (f"{words} as fast{by}",)
    if met is None:
        return result, (), (f"undecided{by}: {words}, an interval that holds 1",)
    if undecided(ratio):
        return result, (f"not faster{by}: {words}, an interval that holds 1",), ()
    if faster(ratio):
        return result, (f"not faster by enough{by}: {words}, and the lower end must be {LEAST_GAIN} or more",), ()
    return result, (f"slower{by}: {words}",), ()


def _made_worse(
    objective: Objective,
    baseline: Verdict,
    candidate: Verdict,
    pairs: Sequence[tuple[SizeMetrics, SizeMetrics | None]],
    times: Sequence[SizeTimes],
    slowdown: float,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns sentences on metrics that got worse beyond their limits, and on those that got worse within them (trade-offs)."""
    worse: list[str] = []
    traded: list[str] = []
    worse += [f"did not run at {_at(size.size)}" for size, other in pairs if other is None]
    for metric in METRICS:
        limit = _limit(objective, metric, slowdown)
        if metric == "time":
            problems, remarks = _slower_sizes(times, limit, asked=objective.metric == "time")
            worse += problems
            traded += remarks
            continue
        if metric == objective.metric and metric != "global_bytes":
            continue
        values = [("", metric_value(metric, baseline), metric_value(metric, candidate))]
        if metric == "global_bytes":
            values = [] if objective.metric == metric else values
            values += [
                (f" at {_at(size.size)}", global_bytes(size.counters), global_bytes(other.counters))
                for size, other in pairs[1:]
                if other is not None
            ]
        for place, before, after in values:
            if before is None or after is None:
                continue
            loss = _loss(metric, before, after)
            if loss <= NOISE[metric]:
                continue
            words = (
                f"{WORDS[metric]}{place}: {format_value(metric, before)} before, {format_value(metric, after)} after"
            )
            if limit is not None and loss > limit + NOISE[metric]:
                worse.append(f"made worse beyond the limit of {limit:.0%}: {words}")
            elif metric != "accuracy" or after > TOLD_ERROR:
                traded.append(words)
    return tuple(worse), tuple(traded)


def _slower_sizes(times: Sequence[SizeTimes], limit: float | None, *, asked: bool) -> tuple[list[str], list[str]]:
    """Returns sentences on sizes that are too slow, and on trade-offs.

    If time is the objective, the deciding size has a stricter limit.

    A measured slowdown within its interval is not significant and is not reported; a predicted one is reported.
    """
    weighted = any(one.weight for one in times)
    worse: list[str] = []
    traded: list[str] = []
    for one in times:
        ratio = one.ratio
        if ratio is None or (asked and one.headline and not weighted):
            continue
        place = "" if one.size is None else f" at {_at(one.size)}"
        why = ", where both versions mostly launch" if mostly_launching(one) else ""
        if limit is not None and slower(ratio, limit) and not never_vetoes(one):
            worse.append(f"slower{place}: {ratio.kind} {show(ratio)}{why}")
        elif slower(ratio) or (ratio.kind == "predicted" and 1 / ratio.median > 1 + TOLD):
            why = ", a size of weight 0" if one.weight == 0 else why
            traded.append(f"slower{place}: {ratio.kind} {show(ratio)}{why}")
    return worse, traded


def _limit(objective: Objective, metric: MetricName, slowdown: float) -> float | None:
    if metric in objective.limits:
        return objective.limits[metric]
    if metric == "time":
        return slowdown
    return DEFAULT_LIMITS["time" if objective.metric == "time" else "counted"][metric].fraction


def _loss(metric: MetricName, before: float, after: float) -> float:
    """Returns the fraction by which a metric got worse; negative if it improved."""
    rise = after - before if better(metric) == "lower" else before - after
    if rise == 0:
        return 0.0
    return rise / abs(before) if before else math.copysign(math.inf, rise)


def _at(size: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in size.items())
