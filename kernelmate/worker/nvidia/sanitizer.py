"""compute-sanitizer on request.

Runs its four tools on the judged code, parses their reports, and turns them into findings at source lines. Forms as
printed by version 2025.3 of CUDA 13.0 and documented in "Compute Sanitizer", sections on each tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernelmate.checks.findings import placed
from kernelmate.compiler.diagnostics import UNIT_NAME
from kernelmate.records import Finding, FindingCode, JudgeTask, Severity, Unit
from kernelmate.worker.nvidia.launch import BUFFER
from kernelmate.worker.nvidia.tool import ToolFailed, ToolOutput, run

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
            "a warp's barrier or exchange names other lanes than those that reach it",
        )
    else:
        code, words = (
            FindingCode.DIVERGENT_BARRIER,
            f"not every thread reaches this barrier ({what[:1].lower()}{what[1:]})",
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


TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

OPTIONS = ("--print-limit", "200", "--show-backtrace", "no", "--destroy-on-device-error", "kernel")
"""Options of compute-sanitizer: a failure at one size must not end the checks of the others."""

STAGE = "sanitize"

_REFUSED = re.compile(
    r"(?:Error: |Internal Sanitizer Error: )?(.*(?:not supported|Internal Sanitizer Error|doesn't exist).*)"
)
_BUFFER = re.compile(rf"^{BUFFER} (\S+) (0x[0-9a-f]+) (\d+)$", re.MULTILINE)

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LaunchBuffer:
    """An array of a launch, with its address."""

    name: str
    address: int
    size: int


def sanitize(task: JudgeTask, device: int, tell: Tell) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Runs the tools around every listed launch of the candidate.

    Args:
        task: says what is launched.
        device: the GPU's number.
        tell: called with the number of tools that have ended.

    Returns:
        Findings in the user's file, and a line that says which tools checked what.
    """
    tell(STAGE, 0, len(TOOLS))
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        jobs = {tool: pool.submit(_ask, tool, task, device) for tool in TOOLS}
        answers: dict[str, ToolOutput | str] = {}
        for done, (tool, job) in enumerate(jobs.items(), start=1):
            answers[tool] = job.result()
            tell(STAGE, done, len(TOOLS))
    return conclude(answers, task.candidate.unit, len(task.sizes or task.candidate.contract.sizes))


def _ask(tool: str, task: JudgeTask, device: int) -> ToolOutput | str:
    try:
        return run("compute-sanitizer", ("--tool", tool, *OPTIONS), task, device)
    except ToolFailed as reason:
        return str(reason)


def conclude(
    answers: Mapping[str, ToolOutput | str], unit: Unit, sizes: int
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Summarises the tools' results; gives the reason for a tool without a result."""
    findings: list[Finding] = []
    clean, lines = [], []
    for tool, answer in answers.items():
        if isinstance(answer, str):
            lines.append(answer)
            continue
        said = read(answer.text)
        findings += findings_of(said.reports, tool, _buffers(answer.errors), unit)
        lines += [
            f"compute-sanitizer ({tool}) reports something that is not understood here: {head}" for head in said.unread
        ]
        if not said.ended:
            lines.append(_silence(tool, answer))
        elif not said.reports:
            clean.append(tool)
    if clean:
        lines.insert(0, f"compute-sanitizer finds nothing: {', '.join(clean)}, {sizes} size{'s' * (sizes != 1)}")
    return tuple(findings), tuple(dict.fromkeys(lines))


def findings_of(
    reports: Sequence[ToolReport], tool: str, buffers: Sequence[LaunchBuffer], unit: Unit
) -> tuple[Finding, ...]:
    """Returns one finding for each code, place and array, with the first report's details."""
    groups: dict[tuple[str, ReportedPlace | None, str | None], list[ToolReport]] = {}
    for report in reports:
        near = _near(report, buffers)
        groups.setdefault((report.code, report.place, None if near is None else near.name), []).append(report)
    return tuple(_finding(group, tool, buffers, unit) for group in groups.values())


def _finding(group: Sequence[ToolReport], tool: str, buffers: Sequence[LaunchBuffer], unit: Unit) -> Finding:
    first, count = group[0], len(group)
    near = _near(first, buffers)
    message = first.message
    if near is not None and first.address is not None:
        message += f": {_where(near, first.address)}"
    if first.other is not None and first.other != first.place:
        message += f"; the other access is at {_named(first.other)}"
    if first.thread is not None:
        x, y, z, *block = first.thread
        message += f"; thread ({x}, {y}, {z}) of block ({', '.join(map(str, block))})"
        message += f", the first of {count} reported" if count > 1 else ""
    ours = first.place is not None and first.place.file.endswith(UNIT_NAME)
    if first.place is not None and not ours:
        message += f" (in {first.place.file}:{first.place.line})"
    finding = Finding(
        first.code,
        first.severity,
        f"{message} [compute-sanitizer {tool}]",
        line=first.place.line if first.place is not None and ours else None,
        buffer=None if near is None else near.name,
        offset=None if near is None or first.address is None else first.address - near.address,
        threads=None if first.thread is None or any(first.thread[1:3]) else (first.thread[0],),
    )
    return placed(finding, unit)


def _named(place: ReportedPlace) -> str:
    if place.file.endswith(UNIT_NAME):
        return f"line {place.line}"  # `placed` turns it into the file's
    return f"{place.file}:{place.line}"


def _near(report: ToolReport, buffers: Iterable[LaunchBuffer]) -> LaunchBuffer | None:
    """Returns the array that a global memory access hits or is close to."""
    address = report.address
    if address is None or report.far or "shared memory" in report.message or "local memory" in report.message:
        return None
    return min(buffers, key=lambda b: max(b.address - address, address - b.address - b.size + 1), default=None)


def _where(buffer: LaunchBuffer, address: int) -> str:
    offset = address - buffer.address
    if offset < 0:
        return f"{-offset} bytes before {buffer.name}"
    if offset >= buffer.size:
        return f"{offset - buffer.size} bytes behind the end of {buffer.name} ({buffer.size} bytes)"
    return f"at byte {offset} of {buffer.name} ({buffer.size} bytes)"


def _buffers(errors: str) -> tuple[LaunchBuffer, ...]:
    return tuple(LaunchBuffer(m[1], int(m[2], 16), int(m[3])) for m in _BUFFER.finditer(errors))


def _silence(tool: str, answer: ToolOutput) -> str:
    """Returns the reason why a tool ended without reporting that it had checked everything."""
    refused = next((m[1] for line in answer.text.splitlines() if (m := _REFUSED.search(line.lstrip("= ")))), None)
    if refused is not None:
        return f"compute-sanitizer ({tool}) refuses: {refused.strip()}"
    printed = [
        line for line in (answer.errors or answer.text).splitlines() if line.strip() and not line.startswith(BUFFER)
    ]
    last = printed[-1].strip("= ").strip() if printed else "it printed nothing"
    return f"compute-sanitizer ({tool}) did not finish (exit code {answer.code}): {last[:200]}"
