"""Terminal view, HTML and JSON of `explain`: the factors that limit a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kernelmate.records import Cause, Optimization, Verdict
from kernelmate.report.answers import answers, causes_for
from kernelmate.report.console import heading, indented, pairs, toned
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.html import pairs as html_pairs
from kernelmate.report.html import text
from kernelmate.report.json import SCHEMA, Document, plain, verdict_json
from kernelmate.report.result import folded, standing_alone, view
from kernelmate.report.tables import provenance
from kernelmate.report.words import correctness_words, kernel_words, percent, printable, timing_words


def causes_view(
    verdict: Verdict, causes: Sequence[Cause], file: str, sources: SourceLines, said: Sequence[str] = ()
) -> Group:
    """Shows one kernel: what answers a question, its standing, then each cause with line, explanation and remedy."""
    parts: list[RenderableType] = [Text(printable(one), style="bold") for one in said]
    parts += [""] if parts else []
    parts.append(heading(kernel_words(verdict), correctness_words(verdict)))
    parts.append(indented(Text(provenance(verdict), style="dim")))
    if verdict.timing is not None:
        predicted = verdict.timing.kind == "predicted"
        parts.append(indented(Text(f"time {timing_words(verdict.timing)}", style="italic" if predicted else "")))
    if not causes and not said:
        parts += ["", indented(toned("nothing stands out: no figure is far from what the GPU does best", "good"))]
    for cause in causes:
        parts += ["", *_cause(cause, file, sources)]
    return Group(*parts)


def _cause(cause: Cause, file: str, sources: SourceLines) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text.assemble((_where(cause), "bold"), printable(cause.what), "  ", (f"[{cause.code}]", "dim"))
    ]
    line = None if cause.line is None else sources.line(file, cause.line)
    if line:
        shown = Text(printable(line, keep="").strip(), style="cyan", no_wrap=True, overflow="ellipsis")
        parts.append(indented(shown))
    parts.append(indented(pairs([("why", cause.why), ("what to do", cause.remedy)])))
    return parts


def causes_html(
    verdict: Verdict,
    causes: Sequence[Cause],
    file: str,
    sources: SourceLines,
    question: str = "",
    said: Sequence[str] = (),
) -> str:
    """Returns the HTML of one kernel: its standing, then each cause; lines wrap in narrow pages.

    The answer to a question comes first, and the causes are then folded, unless the question asks for them.
    """
    parts = [f"<p><strong>{text(one)}</strong></p>" for one in said]
    parts += [f'<p class="verdict"><strong>{text(kernel_words(verdict))}</strong> {standing_alone(verdict)}</p>']
    parts.append(f'<p class="faint">{text(provenance(verdict))}</p>')
    limits = [] if causes else ["<p>Nothing stands out: no figure is far from what the GPU does best.</p>"]
    for cause in causes:
        limits += ['<div class="finding">', *_cause_html(cause, sources.line(file, cause.line)), "</div>"]
    return view(
        parts
        + (folded("limits", "What limits it", limits) if said and not causes_for(question, said, causes) else limits)
    )


def _cause_html(cause: Cause, line: str | None) -> list[str]:
    parts = [f'<p><strong>{text(_where(cause))}</strong>{text(_sentence(cause.what))} <code class="faint">{text(cause.code)}</code></p>']  # fmt: skip
    if line:
        parts.append(f"<pre><span>{text(line.strip())}</span></pre>")
    return [*parts, *html_pairs([("why", text(_sentence(cause.why))), ("what to do", text(_sentence(cause.remedy)))])]


def _sentence(words: str) -> str:
    """Returns the text as a sentence: with a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def _where(cause: Cause) -> str:
    """Returns the line of a cause and its cost: `line 9, about 0.0057 us of the launch: `; empty without a line.

    The share of all lines' cost stands in for a time that was not estimated: the two are ranked by different costs.
    """
    if cause.line is None:
        return ""
    if cause.estimated_us is None:
        return f"line {cause.line}, {percent(cause.share)} of the cost of all lines: "
    return f"line {cause.line}, about {cause.estimated_us:.2g} us of the launch: "


def causes_json(
    explained: Sequence[tuple[Verdict, Sequence[Cause]]], question: str = "", search: Optimization | None = None
) -> Document:
    """Returns the JSON document of `explain`, or of a question."""
    return {
        "schema": SCHEMA,
        "explained": [
            {
                "verdict": verdict_json(verdict),
                "answers": list(answers(question, verdict, search)),
                "causes": [plain(cause) for cause in causes],
            }
            for verdict, causes in explained
        ],
    }
