"""compute-sanitizer on request.

Runs its four tools on the judged code, and turns reports into findings at source lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernelmate.checks.findings import placed
from kernelmate.compiler.diagnostics import UNIT_NAME
from kernelmate.records import Finding, JudgeTask, Unit
from kernelmate.worker.nvidia.launch import BUFFER
from kernelmate.worker.nvidia.reports import ReportedPlace, ToolReport, read
from kernelmate.worker.nvidia.tool import ToolFailed, ToolOutput, run

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
    """Run the tools around every listed launch of the candidate.

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
        lines += [f"compute-sanitizer ({tool}) reports what is not understood here: {head}" for head in said.unread]
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
        message += f"; the other access is at {_named(first.other, unit)}"
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


def _named(place: ReportedPlace, unit: Unit) -> str:
    if place.file.endswith(UNIT_NAME):
        return f"line {unit.locate(place.line, None)[0]}"
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
    return f"compute-sanitizer ({tool}) did not come to its end (exit code {answer.code}): {last[:200]}"
