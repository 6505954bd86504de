"""When a candidate is worth taking: the objective met beyond its noise, and nothing else made worse beyond a limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelmate.measure.statistics import ANY, RatioError, faster, show, slower, speedup, undecided
from kernelmate.records import (
    MOSTLY_LAUNCHING,
    MetricName,
    Objective,
    ObjectiveResult,
    SizeMetrics,
    Speedup,
    Timing,
    Verdict,
)
from kernelmate.suggest.metrics import METRICS, WORDS, better, format_value, global_bytes, metric_value

Basis = Literal["measured", "counted", "predicted"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a metric may get worse, as a fraction of the baseline's; None: any amount. `reason` says why."""

    fraction: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a candidate.

    `accepted` is None where nothing speaks against it but what there is to go by is not enough: a predicted time (whose gain
    may be undecided: then `objective.met` is None too), a guessed contract, no reference.
    """

    objective: ObjectiveResult | None
    accepted: bool | None
    reasons: tuple[str, ...]


NOISE: Mapping[MetricName, float] = {
    "time": 0.0,
    "shared_bytes": 0.0,
    "registers": 0.0,
    "local_bytes": 0.0,
    "global_bytes": 0.005,
    "occupancy": 0.0,
    "accuracy": 0.02,
}
"""The fraction by which a metric must improve to count as improved.

Time carries its own interval; the compiler's figures and occupancy have no noise; sectors move by where buffers happen to
lie; errors move by the order in which threads add.
"""

KEPT = 0.02
"""How much slower a version may be, beyond its interval, that was not asked to be faster."""

MEANS = "a means to speed, which is what was asked for"
DEFAULT_LIMITS: Mapping[Literal["time", "counted"], Mapping[MetricName, Limit]] = {
    "time": {
        "time": Limit(0.02, "no listed size may get slower, beyond the interval and two per cent"),
        "shared_bytes": Limit(None, MEANS),
        "registers": Limit(None, MEANS),
        "local_bytes": Limit(None, MEANS),
        "global_bytes": Limit(None, MEANS),
        "occupancy": Limit(None, MEANS),
        "accuracy": Limit(None, "the tolerance is the limit"),
    },
    "counted": {
        "time": Limit(0.02, "no listed size may get slower, beyond the interval and two per cent"),
        "shared_bytes": Limit(None, "costs nothing until it lowers occupancy, which has its own limit"),
        "registers": Limit(None, "cost nothing until they lower occupancy, which has its own limit"),
        "local_bytes": Limit(0.0, "spilled values are memory traffic that no counter of the emulator shows"),
        "global_bytes": Limit(0.05, "saving on chip by moving more through DRAM is no saving"),
        "occupancy": Limit(0.10, "fewer warps hide less latency"),
        "accuracy": Limit(None, "the tolerance is the limit"),
    },
}
"""How much worse each metric may get, when time was asked for and when anything else was.

An objective's own `limits` ("without using more shared memory") go before these.
"""


def decide(
    objective: Objective | None,
    baseline: Verdict | None,
    candidate: Verdict,
    baseline_sizes: Sequence[SizeMetrics] = (),
    candidate_sizes: Sequence[SizeMetrics] = (),
    *,
    inferred: bool = False,
    error: RatioError = ANY,
) -> Decision:
    """Whether a candidate is accepted.

    Args:
        objective: what was asked for; None asks only for a right kernel without findings.
        baseline: the verdict of the kernel as it was; only None without an objective.
        candidate: the verdict of the version in question; its own `objective`, `accepted`, `reasons` are not read.
        baseline_sizes: counts and times of the baseline at every listed size.
        candidate_sizes: the candidate's.
        inferred: the contract is a guess; then nothing is accepted, only called promising.
        error: of the predicted ratio of the two.
    """
    broken = tuple(_broken(candidate))
    result: ObjectiveResult | None = None
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if objective is not None and baseline is not None:
        beside = candidate_sizes[0].beside if candidate_sizes else None
        result, unmet, notes = _meets(objective, baseline, candidate, beside, error)
        if not broken and objective.metric != "correct":
            worse, traded = _made_worse(objective, baseline, candidate, baseline_sizes, candidate_sizes, error)
            broken, notes = worse, notes + traded
    if broken or unmet:
        return Decision(result, False, broken + unmet)
    doubts = tuple(_doubts(candidate, result, inferred))
    if result is not None and result.basis == "predicted" and result.met is None:
        return Decision(result, None, notes + doubts)
    return Decision(result, None if doubts else True, doubts + notes)


def _broken(verdict: Verdict) -> Iterator[str]:
    if not verdict.compiled:
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
        yield "nothing shows that it is right: give the contract a reference"


def _meets(
    objective: Objective, baseline: Verdict, candidate: Verdict, beside: Timing | None, error: RatioError
) -> tuple[ObjectiveResult, tuple[str, ...], tuple[str, ...]]:
    """The result, what is missing (empty when met), and what is worth knowing though it is met."""
    metric = objective.metric
    before, after = metric_value(metric, baseline), metric_value(metric, candidate)
    if metric == "time":
        return _meets_time(beside or baseline.timing, candidate, error, keep=objective.keep)
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


def _meets_time(
    before: Timing | None, candidate: Verdict, error: RatioError, *, keep: bool
) -> tuple[ObjectiveResult, tuple[str, ...], tuple[str, ...]]:
    """By the ratio of the blocks that both were timed in, where there were such; else by the two times."""
    """Whether it is faster; to `keep` the time, whether it is not slower."""
    after, ratio = candidate.timing, candidate.speedup
    if ratio is None or ratio.kind != "measured":
        ratio = _ratio(before, after, error)
    basis: Basis = "measured" if after is not None and after.kind == "measured" else "predicted"
    if before is None or after is None or ratio is None:
        known = [None if timing is None else timing.median_us for timing in (before, after)]
        result = ObjectiveResult("time", basis, known[0], known[1], None)
        return result, ("the two versions have no times that can be compared",), ()
    if keep:
        met: bool | None = not slower(ratio, KEPT)
    else:
        met = None if undecided(ratio) and basis == "predicted" else faster(ratio)
    result = ObjectiveResult("time", basis, before.median_us, after.median_us, met)
    if met:
        return result, (), (f"{basis} {show(ratio)} as fast",)
    if met is None:
        return result, (), (f"undecided: {basis} {show(ratio)}, an interval that holds 1",)
    if undecided(ratio):
        return result, (f"not faster: {basis} {show(ratio)}, an interval that holds 1",), ()
    return result, (f"slower: {basis} {show(ratio)}",), ()


def _made_worse(
    objective: Objective,
    baseline: Verdict,
    candidate: Verdict,
    baseline_sizes: Sequence[SizeMetrics],
    candidate_sizes: Sequence[SizeMetrics],
    error: RatioError,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What got worse beyond its limit, and what got worse within it (trade-offs are said, never hidden)."""
    worse: list[str] = []
    traded: list[str] = []
    pairs = _pair_sizes(baseline_sizes, candidate_sizes)
    worse += [f"did not run at {_at(size.size)}" for size, other in pairs if other is None]
    for metric in METRICS:
        limit = _limit(objective, metric)
        if metric == "time":
            problems, remarks = _slower_sizes(
                baseline, candidate, pairs, limit, error, asked=objective.metric == "time"
            )
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
            else:
                traded.append(f"trade-off: {words}")
    return tuple(worse), tuple(traded)


def _slower_sizes(
    baseline: Verdict,
    candidate: Verdict,
    pairs: Sequence[tuple[SizeMetrics, SizeMetrics | None]],
    limit: float | None,
    error: RatioError,
    *,
    asked: bool,
) -> tuple[list[str], list[str]]:
    """What is too slow, and what is a trade-off; said too where both versions mostly launch, which a contract's edges do."""
    headline = f" at {_at(pairs[0][0].size)}" if pairs else ""
    ratios = [
        (
            f" at {_at(b.size)}",
            c.speedup or _ratio(b.timing, c.timing, error),
            number > 0 and _launching(c.beside or b.timing, c.timing),
        )
        for number, (b, c) in enumerate(pairs)
        if c is not None
    ]
    if not ratios:
        ratios = [("", candidate.speedup or _ratio(baseline.timing, candidate.timing, error), False)]
    worse: list[str] = []
    traded: list[str] = []
    for place, ratio, launching in ratios:
        if ratio is None:
            continue
        why = ", where both versions mostly launch" if launching else ""
        if limit is not None and slower(ratio, limit):
            worse.append(f"slower{place}: {ratio.kind} {show(ratio)}{why}")
        elif ratio.median < 0.98 and (not asked or (ratio.kind == "predicted" and place != headline)):
            # Of a measured ratio that is not slower beyond its interval nothing is known; a predicted one may be right.
            traded.append(f"trade-off: {ratio.kind} {show(ratio)} as fast{place}{why}")
    return worse, traded


def _launching(*timings: Timing | None) -> bool:
    """All of them are mostly the time of the launch itself."""
    return all(
        timing is not None and any(note.startswith(MOSTLY_LAUNCHING) for note in timing.notes) for timing in timings
    )


def _ratio(before: Timing | None, after: Timing | None, error: RatioError) -> Speedup | None:
    if before is None or after is None or before.kind != after.kind:
        return None
    if not (0 < before.median_us < math.inf and 0 < after.median_us < math.inf):
        return None
    return speedup(before, after, error)


def _limit(objective: Objective, metric: MetricName) -> float | None:
    if metric in objective.limits:
        return objective.limits[metric]
    return DEFAULT_LIMITS["time" if objective.metric == "time" else "counted"][metric].fraction


def _loss(metric: MetricName, before: float, after: float) -> float:
    """By what fraction a metric got worse; negative when it got better."""
    rise = after - before if better(metric) == "lower" else before - after
    if rise == 0:
        return 0.0
    return rise / abs(before) if before else math.copysign(math.inf, rise)


def _pair_sizes(
    baseline: Sequence[SizeMetrics], candidate: Sequence[SizeMetrics]
) -> list[tuple[SizeMetrics, SizeMetrics | None]]:
    by_size = {tuple(sorted(size.size.items())): size for size in candidate}
    return [(size, by_size.get(tuple(sorted(size.size.items())))) for size in baseline]


def _at(size: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in size.items())
