"""Selection of a verdict's findings: one per cause. Of several codes for a cause, the first in `FindingCode` stays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kernelmate.records import WRONG_OUTPUTS, Finding, FindingCode, LineCounters, Unit

VALUE_CODES = WRONG_OUTPUTS | {FindingCode.STATEFUL, FindingCode.ALIASING, FindingCode.NONDETERMINISTIC}
"""Codes of wrong or varying outputs, which another error may explain."""


SAME_CAUSE = (
    frozenset(
        {
            FindingCode.ILLEGAL_ADDRESS,
            FindingCode.OUT_OF_BOUNDS_WRITE,
            FindingCode.OUT_OF_BOUNDS_READ,
            FindingCode.MISALIGNED_ACCESS,
        }
    ),
    frozenset(
        {
            FindingCode.SHARED_RACE,
            FindingCode.GLOBAL_RACE,
            FindingCode.REGISTER_RACE,
            FindingCode.DIVERGENT_BARRIER,
            FindingCode.SHUFFLE_MASK,
            FindingCode.UNINITIALISED_SHARED,
            FindingCode.UNINITIALISED_LOCAL,
            FindingCode.UNINITIALISED_GLOBAL,
        }
    ),
)
"""Sets of codes that one mistake can cause; at one buffer or line, only the first in the order of codes is reported."""

_AT_LINE = re.compile(r"\bat line (\d+)")

_SEVERITIES = ("error", "warning", "note")


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorts findings: errors first, then in the order of `FindingCode`, with one finding for each cause.

    The same code at the same line and buffer is reported once. Wrong answers are reported once per severity, and not at
    all if an access error, a race or modified inputs explain them.
    """
    kept: list[Finding] = []
    for finding in sorted(findings, key=_rank):
        if not any(_explains(other, finding) for other in kept):
            kept.append(finding)
    return tuple(kept)


def _rank(finding: Finding) -> tuple[int, int, bool]:
    # Of findings with one code, that on a stage says more than that on the pipeline.
    return _SEVERITIES.index(finding.severity), finding.code.precedence, finding.stage is None


def _explains(first: Finding, finding: Finding) -> bool:
    """Returns True if `first`, which ranks higher, has the same cause."""
    if finding.code in VALUE_CODES:
        alike = first.code == finding.code or finding.code != FindingCode.NONDETERMINISTIC
        return first.severity == "error" or (first.severity == finding.severity and first.code in VALUE_CODES and alike)
    same_place = first.line == finding.line or (first.buffer is not None and first.buffer == finding.buffer)
    if first.code == finding.code:
        return first.line == finding.line and first.buffer == finding.buffer
    return same_place and any({first.code, finding.code} <= family for family in SAME_CAUSE)


def placed(finding: Finding, unit: Unit) -> Finding:
    """Returns a backend's finding with its position in the user's file, and that of the lines that its message names."""
    finding = replace(finding, file=unit.path, message=message_placed(finding.message, unit))
    if finding.line is None:
        return finding
    line, column = unit.locate(finding.line, finding.column)
    return replace(finding, line=line, column=column)


def message_placed(message: str, unit: Unit) -> str:
    """Returns a backend's message with lines of the user's file: `which thread 3 has written at line 12`."""
    return _AT_LINE.sub(lambda found: f"at line {unit.locate(int(found[1]), 1)[0]}", message)


def lines_placed(lines: Iterable[LineCounters], unit: Unit) -> tuple[LineCounters, ...] | None:
    """Returns a backend's counters with lines of the user's file; None if it did not count."""
    return tuple(one if one.line is None else replace(one, line=unit.locate(one.line, 1)[0]) for one in lines) or None
