"""Metrics of a verdict: the number that decides each objective."""

from __future__ import annotations

from typing import Literal

from kernelmate.records import Constraint, Counters, FindingCode, MetricName, Verdict

NOT_THE_KERNELS = frozenset(
    {FindingCode.TIME_LIMIT, FindingCode.OUT_OF_MEMORY, FindingCode.WORKER_CRASH, FindingCode.UNSUPPORTED_INSTRUCTION}
)
"""Codes of findings that end a judgement without showing a fault of the kernel; correctness stays undecided."""

SECTOR_BYTES = 32
"""Bytes of one sector, the unit in which global memory is moved on every architecture from sm_75 on."""

METRICS: tuple[MetricName, ...] = (
    "time",
    "shared_bytes",
    "registers",
    "local_bytes",
    "global_bytes",
    "occupancy",
    "accuracy",
)
"""Metrics by which correct versions are compared, in display order."""

WORDS: dict[MetricName, str] = {
    "time": "time",
    "shared_bytes": "shared memory per block",
    "registers": "registers per thread",
    "local_bytes": "local memory per thread",
    "global_bytes": "global bytes moved",
    "occupancy": "theoretical occupancy",
    "accuracy": "largest error (in tolerances)",
    "correct": "rightness",
}
"""Display name of each metric."""

UNITS: dict[MetricName, str] = {
    "time": "us",
    "shared_bytes": "bytes",
    "registers": "",
    "local_bytes": "bytes",
    "global_bytes": "bytes",
    "occupancy": "",
    "accuracy": "",
    "correct": "",
}


def better(metric: MetricName) -> Literal["lower", "higher"]:
    """Returns the direction in which the metric's number improves. Accuracy's number is an error, so lower is better."""
    return "higher" if metric in {"occupancy", "correct"} else "lower"


def global_bytes(counters: Counters | None) -> float | None:
    """Returns the bytes that global loads and stores move, in whole sectors; None if they were not counted."""
    if counters is None or counters.global_load_sectors is None or counters.global_store_sectors is None:
        return None
    return float(SECTOR_BYTES * (counters.global_load_sectors + counters.global_store_sectors))


def metric_value(name: MetricName, verdict: Verdict) -> float | None:
    """Returns a metric's number in a verdict, at the headline size.

    Microseconds for `time`; bytes per block for `shared_bytes` (static and dynamic together); bytes per thread for
    `local_bytes`; bytes of the whole launch for `global_bytes`; 0 to 1 for `occupancy`; for `accuracy` the largest
    error over its tolerance among all cases (lower is better); 1 for a right version and 0 for one that is not, for
    `correct`. None if the verdict does not contain it.
    """
    if name == "correct":
        return rightness(verdict)
    if name == "time":
        return None if verdict.timing is None else verdict.timing.median_us
    if name == "occupancy":
        return None if verdict.occupancy is None else verdict.occupancy.theoretical
    if name == "global_bytes":
        return global_bytes(verdict.counters)
    if name == "accuracy":
        errors = [case.max_error for case in verdict.cases if case.max_error is not None]
        return max(errors, default=None)
    resources = verdict.resources
    if resources is None:
        return None
    if name == "shared_bytes":
        return float(resources.shared_bytes + resources.dynamic_shared_bytes)
    if name == "registers":
        return float(resources.registers)
    return float(max(resources.local_bytes, resources.spill_bytes or 0))


def rightness(verdict: Verdict) -> float | None:
    """Returns 1 for a correct version, 0 for one that is wrong or does not compile, None if undecided."""
    errors = [finding.code for finding in verdict.findings if finding.severity == "error"]
    if verdict.correct is None and verdict.compiled and set(errors) <= NOT_THE_KERNELS:
        return None
    return float(verdict.compiled and verdict.correct is True and not errors)


def bounded_metric(constraint: Constraint) -> MetricName | None:
    """Returns the metric that a constraint bounds; None for constraints of block, launch and PTX."""
    return next((metric for metric in METRICS if metric == constraint.kind), None)


def violates(constraint: Constraint, verdict: Verdict) -> bool:
    """Returns True if a figure of a verdict is beyond a constraint's bound; an unknown figure is not."""
    metric, bound = bounded_metric(constraint), constraint.bound
    value = None if metric is None else metric_value(metric, verdict)
    if metric is None or bound is None or value is None:
        return False
    return value < bound if better(metric) == "higher" else value > bound


def format_value(metric: MetricName, value: float | None) -> str:
    """Formats a metric's number with its unit: `16384 bytes`, `75%`, `12.1 us`."""
    if value is None:
        return "unknown"
    if metric == "correct":
        return "right" if value else "not right"
    if metric == "occupancy":
        return f"{value:.0%}"
    if metric in {"time", "accuracy"}:
        return f"{value:.3g} {UNITS[metric]}".strip()
    return f"{value:.0f} {UNITS[metric]}".strip()
