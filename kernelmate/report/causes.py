"""Terminal view and JSON of `explain`: the factors that limit a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kernelmate.records import Cause, Verdict
from kernelmate.report.console import heading, indented, pairs, toned
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.json import SCHEMA, Document, plain, verdict_json
from kernelmate.report.tables import provenance
from kernelmate.report.words import correctness_words, kernel_words, percent, printable, timing_words


def causes_view(verdict: Verdict, causes: Sequence[Cause], file: str, sources: SourceLines) -> Group:
    """Shows one kernel: its standing, then each cause with line, explanation and remedy."""
    parts: list[RenderableType] = [heading(kernel_words(verdict), correctness_words(verdict))]
    parts.append(indented(Text(provenance(verdict), style="dim")))
    if verdict.timing is not None:
        predicted = verdict.timing.kind == "predicted"
        parts.append(indented(Text(f"time {timing_words(verdict.timing)}", style="italic" if predicted else "")))
    if not causes:
        parts += ["", indented(toned("nothing stands out: no figure is far from what the GPU does best", "good"))]
    for cause in causes:
        parts += ["", *_cause(cause, file, sources)]
    return Group(*parts)


def _cause(cause: Cause, file: str, sources: SourceLines) -> list[RenderableType]:
    spent = "" if cause.estimated_us is None else f", about {cause.estimated_us:.2g} us"
    where = "" if cause.line is None else f"line {cause.line}, {percent(cause.share)} of the cost{spent}: "
    parts: list[RenderableType] = [Text.assemble((where, "bold"), printable(cause.what), "  ", (cause.code, "dim"))]
    text = None if cause.line is None else sources.line(file, cause.line)
    if text:
        shown = Text(printable(text, keep="").strip(), style="cyan", no_wrap=True, overflow="ellipsis")
        parts.append(indented(shown))
    parts.append(indented(pairs([("why", cause.why), ("what to do", cause.remedy)])))
    return parts


def causes_json(explained: Sequence[tuple[Verdict, Sequence[Cause]]]) -> Document:
    """JSON document of `explain`."""
    return {
        "schema": SCHEMA,
        "explained": [
            {"verdict": verdict_json(verdict), "causes": [plain(cause) for cause in causes]}
            for verdict, causes in explained
        ],
    }
