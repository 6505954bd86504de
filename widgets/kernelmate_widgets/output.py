"""Output of a cell as HTML, picture and plain text, which a notebook reopened without a kernel shows unchanged.

Outputs are self-contained: no script, no request, at most `LARGEST` bytes. Charts are images in a colour that suits
light and dark backgrounds, because JupyterLab removes SVG elements from untrusted notebooks but keeps images. Hosts
without HTML show the PNG.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from kernelmate.records import Diagnostic, Finding, FindingCode, Judged, Kernel, Optimization, Verdict
from kernelmate.report import words
from kernelmate.report.chart import ChartVersion
from kernelmate.report.diff import whole_text
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.figures import figures, versions_of
from kernelmate.report.html import (
    asked,
    bullets,
    case_row,
    diff,
    figure_rows,
    finding_row,
    message,
    pairs,
    table,
    text,
    toned,
)
from kernelmate_widgets.cells import file_lines
from kernelmate_widgets.charts import scene_of
from kernelmate_widgets.drawing import Scene, picture, png
from kernelmate_widgets.rendering import as_html, as_text

if TYPE_CHECKING:
    from kernelmate_widgets.handle import KernelHandle

LARGEST = 299_000
"""Maximum bytes of one output, with its picture and text; with a panel's frame it stays below 300,000."""

MOST_DIFFS = 6
"""Number of candidates whose changes are shown; the tables list all of them."""

FEW_CANDIDATES = 40
"""Number of candidates in the table of a saved output."""


def sources_of(kernel: Kernel) -> SourceLines:
    """Returns a cell's lines with the numbers that messages use."""
    return SourceLines({kernel.unit.path: file_lines(kernel.unit)})


def views_bundle(*views: Any) -> dict[str, Any]:
    """Views of the terminal as an output."""
    return {"text/plain": as_text(*views), "text/html": as_html(*views)}


def verdict_bundle(
    verdicts: tuple[Verdict, ...], kernel: Kernel, remarks: tuple[str, ...] = (), *, charts: bool = True
) -> dict[str, Any]:
    """Returns the output of verdicts on a cell's kernel, one per instance; charts may be omitted to be fast."""
    from kernelmate.report.console import lines
    from kernelmate.report.tables import verdict_view

    sources = sources_of(kernel)
    views: list[Any] = []
    parts: list[str] = []
    scenes: list[Scene] = []
    for verdict in verdicts:
        views += [*([""] if views else []), verdict_view(verdict, sources)]
        scenes += _scenes([ChartVersion(words.kernel_words(verdict), verdict)]) if charts else []
        parts += _verdict(verdict, sources)
    said = as_text(*views, *([lines(remarks)] if remarks else []))
    return _bundle(said, parts, scenes, remarks)


def optimization_bundle(optimization: Optimization, baseline: Kernel) -> dict[str, Any]:
    """Returns the output of a search: candidates beside the baseline, with charts and changes."""
    from kernelmate.report.versions import optimization_view

    said = as_text(*optimization_view(optimization, baseline, sources_of(baseline)))
    parts = [*_asked(optimization), *_candidates(optimization)]
    scenes = _scenes(versions_of(optimization))
    changes = [
        part
        for index, judged in enumerate(optimization.candidates[:MOST_DIFFS])
        for part in _change(index, judged, optimization, baseline)
    ]
    return _bundle(said, parts, scenes, optimization.notes, after=changes)


def handle_bundle(handle: KernelHandle) -> dict[str, Any]:
    """Returns the output of a kernel and its state."""
    bundle = verdict_bundle((handle.verdict,), handle.version.kernel)
    return {**bundle, "text/plain": repr(handle)}


def panel_bundle(handle: KernelHandle, optimization: Optimization | None, mark: str) -> dict[str, Any]:
    """Return the saved output of a panel: the last search, else the verdict; and the version in force.

    Args:
        handle: the panel's kernel.
        optimization: what the panel shows; None before any search.
        mark: CSS class of the output, by which the live panel finds and hides it.
    """
    first = handle.first
    bundle = handle_bundle(handle) if optimization is None else optimization_bundle(optimization, first.kernel)
    said = (
        f"Version of {handle.version.author} in force." if handle.can_revert else "The cell's own version is in force."
    )
    page = f'<div class="{mark}">{bundle["text/html"]}<p>{text(said)}</p></div>'
    return {**bundle, "text/plain": f"{bundle['text/plain']}\n{said}", "text/html": page}


# ---------------------------------------------------------------------------------------------------- the bundle


def _bundle(
    said: str, parts: Sequence[str], scenes: Sequence[Scene], notes: Iterable[str] = (), *, after: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the output in all its forms, reduced if too large: changes are dropped first, then charts."""
    bundle: dict[str, Any] = {"text/plain": _shortened(said)}
    picture = png(scenes) if scenes else None
    if picture is not None:
        bundle["image/png"] = base64.b64encode(picture).decode()
    room = LARGEST - sum(map(len, map(str, bundle.values())))
    charts = _charts(scenes)
    for shown in ((*parts, *charts, *after), (*parts, *charts), tuple(parts)):
        page = _page([*shown, *bullets(notes)])
        if len(page.encode()) < room:
            break
    else:
        page = as_html(_shortened(said))
    bundle["text/html"] = page
    return bundle


def _shortened(said: str, most: int = 60_000) -> str:
    return said if len(said) <= most else said[:most] + "\n[shortened]"


def _page(parts: Sequence[str]) -> str:
    style = resources.files("kernelmate_widgets").joinpath("output.css").read_text(encoding="utf-8")
    return "\n".join([f'<div class="kernelmate"><style>{style}</style>', *parts, "</div>"])


def _scenes(versions: Sequence[ChartVersion]) -> list[Scene]:
    """The report's charts as scenes."""
    return [scene_of(title, figure) for title, figure in figures(versions).items()]


def _charts(scenes: Sequence[Scene]) -> list[str]:
    if not scenes:
        return []
    drawn = (f"<figure><figcaption>{text(scene.title)}</figcaption>{picture(scene)}</figure>" for scene in scenes)
    return ['<details open><summary>Charts</summary><div class="charts">', *drawn, "</div></details>"]


# ----------------------------------------------------------------------------------------------------- one verdict


def _verdict(verdict: Verdict, sources: SourceLines) -> list[str]:
    right = words.correctness_words(verdict)
    head = f"<strong>{text(words.kernel_words(verdict))}</strong> {toned(*words.standing(verdict, candidate=False))}"
    parts = [f"<p>{head}, {toned(*right)}</p>" if verdict.compiled else f"<p>{head}</p>", _provenance(verdict)]
    parts += _findings(verdict, sources)
    if verdict.compiled:
        parts += pairs(_headline(verdict))
    reasons = words.further_reasons(verdict)
    if reasons:
        parts += bullets(reasons)
    if verdict.cases:
        rows = [case_row(case, verdict) for case in verdict.cases]
        parts += _folded("Sizes", table(["size", "from", "result", "max error", "time", "first wrong"], rows))
    if verdict.compiled:
        parts += _folded("All figures", pairs(figure_rows(verdict)))
    return parts


def _provenance(verdict: Verdict) -> str:
    from kernelmate.report.tables import provenance

    return f'<p class="faint">{text(provenance(verdict))}</p>'


def _headline(verdict: Verdict) -> list[tuple[str, str]]:
    """The few figures that every kernel is looked at for."""
    wanted = {"time", "registers", "shared memory", "occupancy", "against the baseline", "global memory moved"}
    return [row for row in figure_rows(verdict) if row[0] in wanted]


def _findings(verdict: Verdict, sources: SourceLines) -> list[str]:
    """Diagnostics and findings, each with its line of the cell."""
    parts: list[str] = []
    rows: list[tuple[list[str], Diagnostic | Finding]] = [
        (message(d.severity, d.code or "", d.message, d.file, d.line, d.column), d) for d in verdict.diagnostics
    ]
    told = not verdict.diagnostics
    rows += [(finding_row(one), one) for one in verdict.findings if told or one.code != FindingCode.COMPILE_ERROR]
    for (severity, code, where, what), one in rows:
        parts.append(f'<div class="finding">{severity} {code} {where}<div>{what}</div>')
        excerpt = sources.excerpt(one.file, one.line, one.column)
        if excerpt:
            parts.append(f"<pre>{''.join(f'<span>{text(line)}</span>' for line in excerpt)}</pre>")
        parts.append("</div>")
    return parts


def _folded(title: str, parts: Sequence[str]) -> list[str]:
    return [f"<details><summary>{text(title)}</summary>", *parts, "</details>"]


# -------------------------------------------------------------------------------------------------- one prompt


def _asked(optimization: Optimization) -> list[str]:
    objective, verdict = optimization.objective, optimization.baseline
    head = f"<strong>{text(words.kernel_words(verdict))}</strong>: “{text(objective.prompt)}”"
    parts = [f"<p>{head}</p>", f'<p class="faint">{text(objective.reading)}</p>', _provenance(verdict)]
    if optimization.best is None:
        tried = len(optimization.candidates)
        return [*parts, f'<p class="box">{toned("No candidate is worth taking", "bad")} ({tried} tried).</p>']
    best = optimization.candidates[optimization.best]
    parts.append(
        f'<div class="box"><p>{toned(*words.standing(best.verdict))}: <code>{text(best.candidate.author)}</code>, '
        f"{asked(best.verdict)}</p><p>{text(best.candidate.why)}</p></div>"
    )
    return parts


def _candidates(optimization: Optimization) -> list[str]:
    rows = []
    for index, judged in enumerate(optimization.candidates[:FEW_CANDIDATES]):
        word, tone = words.standing(judged.verdict)
        mark = " (best)" if index == optimization.best else ""
        whys = [f'<span class="faint">{text(judged.candidate.why)}</span>', *map(text, _telling(judged.verdict))]
        rows.append(
            [
                str(index + 1),
                f"<code>{text(judged.candidate.author)}</code>",
                asked(judged.verdict),
                toned(word + mark, tone),
                "<br>".join(whys),
            ]
        )
    return table(["#", "author", "asked for", "verdict", "why"], rows) if rows else []


def _telling(verdict: Verdict, most: int = 2) -> tuple[str, ...]:
    return words.telling_reasons(verdict)[:most]


def _change(index: int, judged: Judged, optimization: Optimization, baseline: Kernel) -> list[str]:
    title = f"{index + 1} {judged.candidate.author}"
    changed = diff(whole_text(baseline), whole_text(judged.candidate.kernel), baseline.unit.path)
    best = " open" if index == optimization.best else ""
    head = f"<code>{text(title)}</code> {toned(*words.standing(judged.verdict))}"
    return [f"<details{best}><summary>{head}</summary>", *changed, "</details>"]
