"""Limits of `kernelmate ci`.

Compared metrics, allowed deterioration of each, and the sentence for one that is exceeded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from kernelmate.errors import UsageError
from kernelmate.measure.statistics import show, slower, speedup
from kernelmate.records import Allowance, Counters, Finding, FindingCode, GateMetric, MetricChange, Speedup, Verdict

DEFAULTS: Mapping[GateMetric, Allowance] = {
    "registers": Allowance("registers", 0),
    "spill_bytes": Allowance("spill_bytes", 0),
    "shared_bytes": Allowance("shared_bytes", 0),
    # Sector counts vary with buffer addresses.
    "sectors": Allowance("sectors", 0.005, relative=True),
    "findings": Allowance("findings", 0),
    "time": Allowance("time", 0.02, relative=True),
}
"""Default: no metric may get worse beyond its noise; time by its interval and two per cent."""

_SHORT: Mapping[str, GateMetric] = {"spills": "spill_bytes", "shared": "shared_bytes"}
_ALLOW = re.compile(r"\s*(?P<name>\w+)\s*=\s*(?:(?P<any>any)|\+?(?P<amount>\d+(?:\.\d+)?)\s*(?P<percent>%)?)\s*\Z")
SAYS_NOTHING = frozenset(
    {FindingCode.TIME_LIMIT, FindingCode.OUT_OF_MEMORY, FindingCode.WORKER_CRASH, FindingCode.UNSUPPORTED_INSTRUCTION}
)
"""Codes of limits of the emulator, which no change causes."""


def read_allowances(texts: Sequence[str], settings: Mapping[str, object] | None = None) -> dict[GateMetric, Allowance]:
    """Returns the defaults, overridden by the settings and then by the command line.

    Args:
        texts: `registers=+2`, `sectors=+5%`, `time=any`.
        settings: by name: `"+2"`, `"5%"`, `"any"`, or a number.

    Raises:
        UsageError: one cannot be read.
    """
    allowed = dict(DEFAULTS)
    for text in (*(f"{name}={value}" for name, value in (settings or {}).items()), *texts):
        one = _read(text)
        allowed[one.metric] = one
    return allowed


def _read(text: str) -> Allowance:
    found = _ALLOW.match(text)
    name = "" if found is None else _SHORT.get(found["name"], found["name"])
    if found is None or name not in get_args(GateMetric):
        names = ", ".join(("registers", "spills", "shared", "sectors", "findings", "time"))
        raise UsageError(f"{text!r} is not a valid allowance.", hint=f"Write NAME=+2, NAME=+5% or NAME=any, NAME being one of {names}.")  # fmt: skip
    metric: GateMetric = name  # type: ignore[assignment]
    if found["any"]:
        return Allowance(metric, None)
    if metric == "findings" and found["percent"]:
        raise UsageError(f"{text!r} is not a valid allowance.", hint="Write findings=+N: findings are counted.")
    relative = bool(found["percent"]) or metric == "time"
    if metric == "time" and not found["percent"]:
        raise UsageError(f"{text!r} is not a valid allowance.", hint="Write time=+N%: times are compared by their ratio.")  # fmt: skip
    amount = float(found["amount"])
    return Allowance(metric, amount / 100 if relative else amount, relative)


def figures_of(
    baseline: Verdict | None, verdict: Verdict, allowances: Mapping[GateMetric, Allowance], fresh: int
) -> tuple[MetricChange, ...]:
    """Compares every metric of two versions with its limit.

    Args:
        baseline: the earlier verdict; None if there was no version or it could not be judged.
        verdict: the present verdict.
        allowances: limits by metric.
        fresh: findings that the earlier version does not have.
    """
    figures = []
    for metric in ("registers", "spill_bytes", "shared_bytes", "sectors"):
        before, after = (None if one is None else _value(metric, one) for one in (baseline, verdict))
        most = _most(before, allowances[metric])
        worse = most is not None and after is not None and after > most
        if before is None and after is None:
            continue
        figures.append(MetricChange(metric, before, after, most, worse))
    limit = allowances["findings"].amount
    known = float(_counted(baseline))
    after_count = float(_counted(verdict))
    beyond = limit is not None and fresh > limit
    figures.append(MetricChange("findings", None if baseline is None else known, after_count, None if limit is None else known + limit, beyond))  # fmt: skip
    time = _time(baseline, verdict, allowances["time"])
    return (*figures, time) if time is not None else tuple(figures)


def _value(metric: GateMetric, verdict: Verdict) -> float | None:
    if metric == "sectors":
        return _sectors(verdict.counters)
    resources = verdict.resources
    if resources is None:
        return None
    if metric == "shared_bytes":
        return float(resources.shared_bytes + resources.dynamic_shared_bytes)
    value = getattr(resources, metric)
    return None if value is None else float(value)


def _sectors(counters: Counters | None) -> float | None:
    """Returns the sectors of loads, stores and atomics of the headline launch."""
    if counters is None or counters.global_load_sectors is None or counters.global_store_sectors is None:
        return None
    return float(counters.global_load_sectors + counters.global_store_sectors + (counters.global_atomic_sectors or 0))


def _most(before: float | None, allowance: Allowance) -> float | None:
    if before is None or allowance.amount is None:
        return None
    return before * (1 + allowance.amount) if allowance.relative else before + allowance.amount


def _time(baseline: Verdict | None, verdict: Verdict, allowance: Allowance) -> MetricChange | None:
    """Compares the headline's times: gated if both were measured, and only beyond the interval of their ratio."""
    after = verdict.timing
    before = None if baseline is None else baseline.timing
    if after is None:
        return None
    known = None if before is None else before.median_us
    if after.kind == "predicted" or (before is not None and before.kind == "predicted"):
        return MetricChange("time", known, after.median_us, None, False, "predicted, not gated")
    if before is None:
        return MetricChange("time", None, after.median_us, None, False)
    ratio = _ratio(baseline, verdict)
    limit = allowance.amount
    worse = limit is not None and ratio is not None and slower(ratio, limit)
    most = None if limit is None else before.median_us * (1 + limit)
    return MetricChange("time", known, after.median_us, most, worse, None if ratio is None else f"measured {show(ratio)} as fast")  # fmt: skip


def _ratio(baseline: Verdict | None, verdict: Verdict) -> Speedup | None:
    """Returns the speedup from common timing blocks if possible, else from the two times."""
    ratio = verdict.speedup
    if ratio is not None and ratio.kind == "measured" and not ratio.weighted:
        return ratio
    if baseline is None or baseline.timing is None or verdict.timing is None:
        return None
    try:
        return speedup(baseline.timing, verdict.timing)
    except ValueError:
        return None


def more_findings(
    baseline: Verdict | None, verdict: Verdict, allowances: Mapping[GateMetric, Allowance], *, guessed: bool
) -> tuple[list[str], list[Finding]]:
    """Returns reasons why a version's findings do not pass, and the findings that the earlier version does not have.

    A new kernel with an inferred contract only has to compile, since generated sizes prove little.
    """
    fresh = _fresh(() if baseline is None else _telling(baseline), _telling(verdict))
    if baseline is None:
        # Warnings are mostly of sizes that nobody listed: of a kernel without a past they prove nothing.
        fresh = [
            one for one in fresh if one.severity == "error" and (not guessed or one.code == FindingCode.COMPILE_ERROR)
        ]
    limit = allowances["findings"].amount
    if limit is None:
        return [], fresh
    failures = (
        [] if len(fresh) <= limit else [f"{finding.severity} {finding.code}: {finding.message}" for finding in fresh]
    )
    was_right = baseline is None or baseline.correct is not False
    if verdict.correct is False and was_right and not fresh and not guessed:
        failures.append("it is wrong, and was not before" if baseline is not None else "it is wrong")
    return failures, fresh


def _fresh(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """Returns findings beyond the earlier number of their code, or errors that were warnings before."""
    errors = Counter(one.code for one in before if one.severity == "error")
    all_of = Counter(one.code for one in before)
    fresh = []
    for finding in sorted(after, key=lambda one: one.severity != "error"):
        known = errors if finding.severity == "error" else all_of
        if known[finding.code]:
            all_of[finding.code] -= 1
            errors[finding.code] -= finding.severity == "error"
        else:
            fresh.append(finding)
    return fresh


def is_stopped_by_limit(verdict: Verdict) -> bool:
    """True if a limit of time, memory or instructions left it unjudged, which is not a fault of the version."""
    return any(one.code in SAYS_NOTHING - {FindingCode.WORKER_CRASH} for one in verdict.findings)


def _telling(verdict: Verdict) -> list[Finding]:
    """Returns errors and warnings about the kernel itself."""
    return [one for one in verdict.findings if one.severity != "note" and one.code not in SAYS_NOTHING]


def _counted(verdict: Verdict | None) -> int:
    return 0 if verdict is None else len(_telling(verdict))
