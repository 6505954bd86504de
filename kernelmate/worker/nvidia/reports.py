"""Parser of compute-sanitizer's output: one report for each access or race, with its place in the source.

Forms as printed by version 2025.3 of CUDA 13.0 and documented in "Compute Sanitizer", sections on each tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernelmate.records import FindingCode, Severity

NEAR_BYTES = 4096
"""Largest distance in bytes from an array at which an access is attributed to it."""

_PREFIX = re.compile(r"^========= ?(.*)$")
_PLACE = re.compile(r"\bat (?P<function>.+?)\+0x[0-9a-f]+(?: in (?P<file>\S.*?):(?P<line>\d+))?(?P<rest>\s*\[.*\])?$")
_THREAD = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_INVALID = re.compile(r"^Invalid __(?P<space>\w+)__ (?P<kind>read|write|atomic) of size (?P<size>[\d,]+) bytes")
_UNINITIALISED = re.compile(r"^Uninitialized __(?P<space>\w+)__ memory read of size (?P<size>[\d,]+) bytes")
_ADDRESS = re.compile(r"(?:Access to|Address) (0x[0-9a-f]+)")
_NEAREST = re.compile(r"and is ([\d,]+) bytes (before|after) the nearest allocation")
_RACE = re.compile(r"^(?P<level>Error|Warning|Info): Race reported between (?P<first>\w+) access ")
_SECOND = re.compile(r"^\s*and (?P<second>\w+) access ")
_BARRIER = re.compile(r"^Barrier error detected\. (?P<what>.*?)\.?$")
_SUMMARY = re.compile(r"^(?:ERROR SUMMARY|RACECHECK SUMMARY): ")
_OTHER = re.compile(
    r"^(?:COMPUTE-SANITIZER|Program hit |Target application returned an error|ERROR SUMMARY|RACECHECK SUMMARY"
    r"|Warning: Error buffer|Saved host backtrace|Host Frame|ERROR ERROR)"
)


@dataclass(frozen=True, slots=True)
class ReportedPlace:
    """A source line as the compiler named it: `kernel.cu` stands for the unit."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One report of a tool.

    Attributes:
        code: the finding's code.
        message: the event, without the buffer's name.
        severity: the tool's severity.
        place: source place; None without line information.
        other: the second access of a race.
        address: the accessed address, if reported; `far` means that no array is near it.
        thread: x, y, z in the block, then the block's indices; None without a single responsible thread.
        doing: `read`, `write` or `atomic`, with its bytes; None for other events.
    """

    code: FindingCode
    severity: Severity
    message: str
    place: ReportedPlace | None = None
    other: ReportedPlace | None = None
    address: int | None = None
    far: bool = False
    thread: tuple[int, ...] | None = None
    doing: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ToolReports:
    """All output of one tool.

    Attributes:
        reports: reports in order, with equal ones of other threads.
        ended: True if it printed its summary, so that no report means no finding.
        unread: first lines of reports that could not be parsed.
    """

    reports: tuple[ToolReport, ...]
    ended: bool
    unread: tuple[str, ...]


def read(text: str) -> ToolReports:
    """Parses a tool's whole output."""
    reports, unread, ended = [], [], False
    for block in _blocks(text):
        ended = ended or any(_SUMMARY.match(line) for line in block)
        report = _report(block)
        if report is not None:
            reports.append(report)
        elif not _OTHER.match(block[0]) and _place(block) is not None:
            unread.append(block[0])
    return ToolReports(tuple(reports), ended, tuple(dict.fromkeys(unread)))


def _blocks(text: str) -> Iterator[list[str]]:
    """Yields the reports' lines without their prefix; an empty line or the head of another report ends one."""
    block: list[str] = []
    for raw in text.splitlines():
        prefixed = _PREFIX.match(raw)
        if prefixed is None:
            continue
        line = prefixed[1].rstrip()
        if block and (not line or not line.startswith(" ")):
            yield block
            block = []
        if line:
            block.append(line)
    if block:
        yield block


def _report(block: Sequence[str]) -> ToolReport | None:
    head = block[0]
    for pattern, reader in _READERS:
        match = pattern.match(head)
        if match is not None:
            return reader(match, block)
    return None


def _invalid(match: re.Match[str], block: Sequence[str]) -> ToolReport:
    space, kind, size = match["space"], match["kind"], _number(match["size"])
    text = "\n".join(block)
    nearest = _NEAREST.search(text)
    far = nearest is not None and _number(nearest[1]) > NEAR_BYTES
    if "misaligned" in text:
        code, how = FindingCode.MISALIGNED_ACCESS, "off its alignment"
    elif far:
        code, how = FindingCode.ILLEGAL_ADDRESS, "far from every array"
    else:
        code = FindingCode.OUT_OF_BOUNDS_READ if kind == "read" else FindingCode.OUT_OF_BOUNDS_WRITE
        how = "out of bounds"
    verb = {"read": "reads", "write": "writes", "atomic": "updates"}[kind]
    words = f"{verb} {size} bytes of {space} memory {how}"
    return ToolReport(code, "error", words, _place(block), None, _address(block), far, _thread(block), (kind, size))


def _uninitialised(match: re.Match[str], block: Sequence[str]) -> ToolReport:
    space, size = match["space"], _number(match["size"])
    code = UNINITIALISED.get(space, FindingCode.UNINITIALISED_GLOBAL)
    words = f"reads {size} bytes of {space} memory that nothing has written"
    return ToolReport(code, "error", words, _place(block), None, _address(block), False, _thread(block), ("read", size))


def _race(match: re.Match[str], block: Sequence[str]) -> ToolReport:
    severity: Severity = {"Error": "error", "Warning": "warning"}.get(match["level"], "note")  # type: ignore[assignment]
    seconds = [(second["second"], _place([line])) for line in block[1:] if (second := _SECOND.match(line))]
    kind, other = seconds[0] if seconds else ("?", None)
    words = f"{match['first'].lower()} and {kind.lower()} of one shared byte by different threads, in no order"
    return ToolReport(FindingCode.SHARED_RACE, severity, words, _place(block), other)


def _barrier(match: re.Match[str], block: Sequence[str]) -> ToolReport:
    what = match["what"]
    if what.startswith("Invalid arguments"):
        code, words = (
            FindingCode.SHUFFLE_MASK,
            "a warp's barrier or exchange names other lanes than those that come to it",
        )
    else:
        code, words = (
            FindingCode.DIVERGENT_BARRIER,
            f"not every thread comes to this barrier ({what[:1].lower()}{what[1:]})",
        )
    return ToolReport(code, "error", words, _place(block), None, None, False, _thread(block))


UNINITIALISED = {"shared": FindingCode.UNINITIALISED_SHARED, "local": FindingCode.UNINITIALISED_LOCAL}
"""Codes by memory; of all others, global."""

_READERS = ((_INVALID, _invalid), (_UNINITIALISED, _uninitialised), (_RACE, _race), (_BARRIER, _barrier))


def _place(block: Iterable[str]) -> ReportedPlace | None:
    for line in block:
        match = _PLACE.search(line)
        if match is not None and match["file"] is not None:
            return ReportedPlace(match["file"], int(match["line"]))
    return None


def _thread(block: Sequence[str]) -> tuple[int, ...] | None:
    match = next((found for line in block if (found := _THREAD.search(line))), None)
    return None if match is None else tuple(map(int, match.groups()))


def _address(block: Sequence[str]) -> int | None:
    match = next((found for line in block if (found := _ADDRESS.search(line))), None)
    return None if match is None else int(match[1], 16)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
