"""Terminal views and JSON of the history: kernels, their versions, and all details of one version."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import KnownKernel, RecordedJudgement, Verdict
from kernelmate.report.console import Verbatim, heading, lines, pairs, table, toned
from kernelmate.report.json import SCHEMA, Document
from kernelmate.report.words import (
    Tone,
    byte_words,
    case_time_words,
    correctness_words,
    number,
    objective_words,
    one_line,
    plural,
    printable,
    shared_bytes,
    speedup_words,
    standing,
    timing_words,
    trade_off_lines,
)

USER = "user"


def verdict_of(document: Any) -> Verdict | None:
    """Returns a verdict from its JSON document; None if another version of KernelMate wrote it in an incompatible form."""
    try:
        return msgspec.convert(document, Verdict)
    except msgspec.ValidationError:
        return None


def kernels_view(kernels: Sequence[KnownKernel]) -> RenderableType:
    """Lists all kernels, one line each."""
    made = table("#", "kernel", "file", "versions", "judged", "last", right=(0, 3, 4))
    for known in kernels:
        made.add_row(
            str(known.number),
            Text(printable(known.name), style="bold"),
            printable(short_path(known.path)),
            number(known.versions),
            number(known.judgements),
            when(known.seen_us),
        )
    return made


def versions_view(recorded: Sequence[RecordedJudgement]) -> Table:
    """Lists the judgements of one kernel in order, one line each; a repeated prompt is shown once."""
    made = table("#", "when", "author", "verdict", "time", "from", "asked for", right=(0, 4, 5))
    for place in (0, 1, 3, 4, 5):
        made.columns[place].no_wrap = True  # a long author takes further lines, and leaves the figures whole
    made.columns[2].min_width, made.columns[6].min_width = 14, 10
    before = None
    for one in recorded:
        word, tone = standing_of(one)
        verdict = verdict_of(one.judged.verdict)
        timing = None if verdict is None else verdict.timing
        prompt = one.judged.prompt
        made.add_row(
            str(one.version),
            when(one.at_us),
            toned(one.judged.author),
            toned(word, tone),
            Text("-" if timing is None else case_time_words(timing.median_us, timing)),
            "" if one.judged.parent is None else str(one.judged.parent),
            "" if prompt is None else '"' if prompt == before else printable(one_line(prompt)),
        )
        before = prompt
    return made


def version_view(one: RecordedJudgement, *, source: bool) -> Group:
    """Shows all details of one version.

    Args:
        one: the version with a judgement.
        source: True to show its text too.
    """
    verdict = verdict_of(one.judged.verdict)
    rows = [
        ("file", short_path(one.path)),
        ("judged", f"{when(one.at_us)} by KernelMate {one.tool}, {one.judged.command}"),
        ("author", one.judged.author),
    ]
    rows += [("made from", f"version {one.judged.parent}")] if one.judged.parent is not None else []
    rows += [("asked for", f'"{one.judged.prompt}"')] if one.judged.prompt else []
    rows += [("why", one.judged.why)] if one.judged.why else []
    rows += [("how", step) for step in one.judged.steps]
    rows += [("cost", one.judged.cost.words)] if one.judged.cost.words else []
    rows += _figures(verdict)
    parts: list[RenderableType] = [heading(f"{one.name}, version {one.version}", standing_of(one)), pairs(rows)]
    if verdict is not None and verdict.findings:
        parts += ["", lines([f"{finding.severity} {finding.code}: {finding.message}" for finding in verdict.findings])]
    if verdict is not None and (verdict.reasons or verdict.trade_offs):
        parts += ["", lines(verdict.reasons + trade_off_lines(verdict))]
    if source:
        parts += ["", Verbatim(one.source)]
    return Group(*parts)


def _figures(verdict: Verdict | None) -> list[tuple[str, str]]:
    if verdict is None:
        return [("verdict", "in a form that this version of KernelMate does not read; see --json")]
    rows = [("on", f"{verdict.backend}, {verdict.target}, {verdict.compiler}")]
    rows.append(("correct", correctness_words(verdict)[0]))
    if verdict.timing is not None:
        rows.append(("time", timing_words(verdict.timing)))
    if verdict.speedup is not None:
        rows.append(("against it", speedup_words(verdict.speedup)))
    if verdict.objective is not None:
        rows.append(("objective", f"{verdict.objective.name}: {objective_words(verdict.objective)}"))
    if verdict.resources is not None:
        resources = verdict.resources
        shared = byte_words(shared_bytes(resources))
        rows.append(("resources", f"{plural(resources.registers, 'register')} per thread, {shared} shared per block"))
    return rows


def standing_of(one: RecordedJudgement) -> tuple[str, Tone]:
    """Returns a version's verdict in one or two words."""
    verdict = verdict_of(one.judged.verdict)
    if verdict is None:
        return "unreadable", "doubt"
    return standing(verdict, candidate=one.judged.parent is not None)


def when(at_us: int) -> str:
    """Formats a time in the user's time zone, to the minute, with the year unless it is the present one."""
    then = datetime.datetime.fromtimestamp(at_us / 1e6).astimezone()
    now = datetime.datetime.now().astimezone()
    return then.strftime("%b %d %H:%M" if then.year == now.year else "%Y %b %d %H:%M")


def short_path(path: str) -> str:
    """Returns a path relative to the current folder if that is shorter."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path


def kernels_json(kernels: Sequence[KnownKernel]) -> Document:
    """JSON document of `history` without a kernel."""
    keys = ("number", "name", "path", "versions", "judgements", "seen_us")
    return {"schema": SCHEMA, "kernels": [{key: getattr(known, key) for key in keys} for known in kernels]}


def versions_json(recorded: Sequence[RecordedJudgement]) -> Document:
    """JSON document of `history KERNEL` and `history show`."""
    return {"schema": SCHEMA, "versions": [_version(one) for one in recorded]}


def _version(one: RecordedJudgement) -> Document:
    judged, cost = one.judged, one.judged.cost
    return {
        "version": one.version,
        "kernel": one.name,
        "path": one.path,
        "at_us": one.at_us,
        "command": judged.command,
        "author": judged.author,
        "prompt": judged.prompt,
        "metric": judged.metric,
        "why": judged.why,
        "steps": list(judged.steps),
        "parent": judged.parent,
        "launch": judged.launch,
        "cost": {"input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens, "usd": cost.usd},
        "tool": one.tool,
        "source": one.text,
        "verdict": judged.verdict,
    }
