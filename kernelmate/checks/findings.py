"""Selection of a verdict's findings: one per cause; of several codes for one cause the first in the list wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernelmate.records import Finding, LineCounters, Unit

CODES = (
    "forbidden-source", "compile-error", "unsupported-instruction", "launch-failure", "hang", "time-limit", "trap", "worker-crash",
    "out-of-memory", "output-flood", "illegal-address", "out-of-bounds-write", "out-of-bounds-read",
    "misaligned-access", "index-overflow", "shared-race", "global-race", "divergent-barrier", "shuffle-mask",
    "uninitialised-shared", "uninitialised-local", "uninitialised-global", "input-mutated", "stateful", "aliasing",
    "stale-output", "constant-output", "wrong-at-size", "nan-handling", "precision-loss", "wrong-values",
    "nondeterministic", "sub-physical-time", "suspicious-speedup",
)  # fmt: skip
"""All finding codes; of several that fit one cause the first wins. Codes are added, never renamed."""

VALUE_CODES = frozenset(CODES[CODES.index("stateful") : CODES.index("nondeterministic") + 1])
"""Codes of wrong answers, which are dropped if another error explains them."""


SAME_CAUSE = (
    frozenset({"illegal-address", "out-of-bounds-write", "out-of-bounds-read", "misaligned-access"}),
    frozenset(
        {"shared-race", "global-race", "divergent-barrier", "shuffle-mask", "uninitialised-shared",
         "uninitialised-local", "uninitialised-global"}
    ),
)  # fmt: skip
"""Sets of codes that one mistake can trigger together: for one buffer or line only the first of the list is reported."""

_SEVERITIES = ("error", "warning", "note")


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorts findings, errors first, then in the order of `CODES`, and keeps one for each cause.

    The same code at the same line and buffer is reported once. Wrong answers are reported once per severity, and not at
    all if an access error, a race or modified inputs explain them.
    """
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        if not any(_explains(other, finding) for other in kept):
            kept.append(finding)
    return tuple(kept)


def _rank(finding: Finding) -> tuple[int, int]:
    return _SEVERITIES.index(finding.severity), CODES.index(finding.code)


def _explains(first: Finding, finding: Finding) -> bool:
    """Returns True if `first`, which ranks higher, has the same cause."""
    if finding.code in VALUE_CODES:
        alike = first.code == finding.code or finding.code != "nondeterministic"
        return first.severity == "error" or (first.severity == finding.severity and first.code in VALUE_CODES and alike)
    same_place = first.line == finding.line or (first.buffer is not None and first.buffer == finding.buffer)
    if first.code == finding.code:
        return first.line == finding.line and first.buffer == finding.buffer
    return same_place and any({first.code, finding.code} <= family for family in SAME_CAUSE)


def placed(finding: Finding, unit: Unit) -> Finding:
    """Returns a backend's finding with its position in the user's file."""
    if finding.line is None:
        return replace(finding, file=unit.path)
    line, column = unit.locate(finding.line, finding.column)
    return replace(finding, file=unit.path, line=line, column=column)


def lines_placed(lines: Iterable[LineCounters], unit: Unit) -> tuple[LineCounters, ...] | None:
    """Returns a backend's counters with lines of the user's file; None if it did not count."""
    return tuple(one if one.line is None else replace(one, line=unit.locate(one.line, 1)[0]) for one in lines) or None
