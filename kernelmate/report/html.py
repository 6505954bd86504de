"""HTML elements that pages and notebooks share; all text from files and models is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kernelmate.records import Case, Finding, Verdict
from kernelmate.report import words
from kernelmate.report.counters import hardware_rows
from kernelmate.report.diff import LineKind, diff_lines, line_kind
from kernelmate.report.roofline import roofline_words


def text(shown: object) -> str:
    """Escapes text for use anywhere in the page, attributes included."""
    return escape(words.printable(str(shown)), quote=True)


def toned(shown: str, tone: words.Tone) -> str:
    """Returns an element with text in the colour of a tone."""
    return f'<span class="{tone}">{text(shown)}</span>'


def bullets(items: Iterable[str]) -> list[str]:
    """Returns a bulleted list."""
    entries = [f"<li>{text(item)}</li>" for item in items]
    return ["<ul>", *entries, "</ul>"] if entries else []


def pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Returns a definition list; the values are HTML already."""
    return ["<dl>", *(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in rows), "</dl>"]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a table; its cells are HTML already. Each names its column, so that a narrow page can show rows as cards."""
    head = "".join(f"<th>{text(one)}</th>" for one in heads)
    body = (
        "<tr>"
        + "".join(f'<td data-label="{text(name)}">{cell}</td>' for name, cell in zip(heads, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return ['<div class="scroll"><table>', f"<thead><tr>{head}</tr></thead><tbody>", *body, "</tbody></table></div>"]


def message(severity: str, code: str, said: str, file: str | None, line: int | None, column: int | None) -> list[str]:
    """Returns one table row of a finding: severity, code, place, text."""
    where = ":".join(str(part) for part in (file, line, column) if part is not None)
    tones: dict[str, words.Tone] = {"error": "bad", "warning": "doubt"}
    return [
        toned(severity, tones.get(severity, "plain")),
        f"<code>{text(code)}</code>",
        f"<code>{text(where)}</code>",
        text(said),
    ]


def finding_row(finding: Finding) -> list[str]:
    """Returns a finding's table row."""
    return message(finding.severity, finding.code, finding.message, finding.file, finding.line, finding.column)


def case_row(case: Case, verdict: Verdict) -> list[str]:
    """Returns a size's table row: size, origin, result, error, time, first wrong element."""
    time = text(words.case_time_words(case.median_us, verdict.timing))
    predicted = case.median_us is not None and (verdict.timing is None or verdict.timing.kind == "predicted")
    wrong = words.wrong_words(case.first_wrong)
    return [
        f"<code>{text(words.size_words(case.size))}</code>",
        text(case.origin),
        toned(*words.case_words(case)),
        text(words.error_words(case)),
        f'<span class="predicted">{time} predicted</span>' if predicted else time,
        f"<code>{text(wrong)}</code>" if wrong else "",  # a narrow page omits the heading of an empty cell
    ]


def figure_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Returns all figures of one version: names, and values in HTML."""
    rows: list[tuple[str, str]] = []

    def predicted(shown: str, kind: str) -> str:
        return f'<span class="predicted">{text(shown)}</span>' if kind == "predicted" else text(shown)

    if verdict.timing is not None:
        rows.append(("time", predicted(words.timing_words(verdict.timing), verdict.timing.kind)))
        if verdict.predicted is not None:
            rows.append(
                ("time, predicted", predicted(words.beside_words(verdict.timing, verdict.predicted), "predicted"))
            )
    if verdict.speedup is not None:
        rows.append(("against the baseline", predicted(words.speedup_words(verdict.speedup), verdict.speedup.kind)))
    rows += [(name, text(said)) for name, said in words.alternative_rows(verdict)]
    resources_ = verdict.resources
    if resources_ is not None:
        rows += [
            ("registers", text(f"{resources_.registers} per thread")),
            ("shared memory", text(f"{words.shared_words(resources_)} per block")),
            ("local memory", text(f"{words.byte_words(resources_.local_bytes)} per thread")),
            ("spills", text(words.byte_words(resources_.spill_bytes))),
        ]
    if verdict.occupancy is not None:
        rows.append(("occupancy", text(words.occupancy_words(verdict.occupancy))))
        rows.append(("waves", text(words.wave_words(verdict.occupancy))))
    if verdict.roofline is not None:
        rows.append(("roofline", predicted(roofline_words(verdict.roofline), verdict.roofline.kind or "")))
    rows += _counted(verdict)
    rows.append(("binary", f"<code>{text(verdict.binary or 'none')}</code>"))
    return rows


def _counted(verdict: Verdict) -> list[tuple[str, str]]:
    """Returns emulated counters of the headline launch, and hardware-only ones."""
    rows: list[tuple[str, str]] = []
    if verdict.counters is not None:
        moved = words.global_bytes(verdict.counters)
        if moved is not None:
            rows.append(("global memory moved", text(f"{words.byte_words(moved)} ({verdict.counters.source})")))
        for name, label in words.COUNTER_WORDS.items():
            value = getattr(verdict.counters, name)
            if value is not None:
                rows.append((label, text(words.number(value))))
    if verdict.hardware is not None:
        rows += [(f"{label}, {verdict.hardware.tool}", text(value)) for label, value in hardware_rows(verdict.hardware)]
    return rows


def diff(before: str, after: str, path: str) -> list[str]:
    """Returns a diff line by line."""
    lines = diff_lines(before, after, path)
    if not lines:
        return ['<p class="faint">The text of the file is the same; only the launch differs.</p>']
    spans = (code_line(line, line_kind(line, index)) for index, line in enumerate(lines))
    return [f"<pre>{''.join(spans)}</pre>"]


def code_line(line: str, kind: LineKind = "same") -> str:
    """Returns a line of a `pre` element.

    Style sheets make the span a block. The line break is for pages without a style sheet; it is inside the span,
    because a line break between blocks would show as an empty line.
    """
    return f'<span class="{kind}">{text(line)}\n</span>'
