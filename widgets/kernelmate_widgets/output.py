"""Outputs of a cell as HTML, PNG and plain text, which a notebook reopened without a kernel shows unchanged.

The terminal's views are rendered as text, coloured text, or HTML, so that all front ends share their wording.

Outputs are self-contained: no script, no request, at most `LARGEST` bytes. Charts are images in a colour that suits
light and dark backgrounds, because JupyterLab removes SVG elements from untrusted notebooks but keeps images. Hosts
without HTML show the PNG.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.segment import Segment

from kernelmate.records import Kernel, Optimization, Verdict
from kernelmate.report import words
from kernelmate.report.chart import ChartVersion
from kernelmate.report.console import show
from kernelmate.report.drawing import Scene, picture, png
from kernelmate.report.excerpt import sources_of
from kernelmate.report.figures import figures
from kernelmate.report.html import bullets, text
from kernelmate.report.result import charted_versions, optimization_parts, verdict_parts, view
from kernelmate.report.result_charts import result_scenes
from kernelmate_widgets.charts import scene_of

if TYPE_CHECKING:
    from kernelmate.report.machine import Check
    from kernelmate_widgets.handle import KernelHandle

WIDTH = 110
"""Width in columns of rendered views."""

COLOURS = {"red": "#c4432b", "green": "#3f8f4f", "magenta": "#a864a8", "cyan": "#2f8ca3", "yellow": "#a07d1c"}
"""Terminal colours with a contrast of at least 3 to 1 on white and on the dark theme's background."""


def _console(file: io.StringIO, *, color: bool, width: int = WIDTH) -> Console:
    # Environment detection is disabled, because rich would display by itself in a notebook.
    return Console(
        file=file, force_terminal=color, color_system="standard" if color else None, force_jupyter=False, width=width,
        markup=False, emoji=False, highlight=False, legacy_windows=False,
    )  # fmt: skip


def as_text(*views: RenderableType, width: int = WIDTH) -> str:
    """Renders views as plain text without trailing blanks."""
    return _written(views, color=False, width=width)


def as_ansi(*views: RenderableType, width: int = WIDTH) -> str:
    """Renders views as text with the escape sequences of colours, for IPython's tracebacks."""
    return _written(views, color=True, width=width)


def _written(views: tuple[RenderableType, ...], *, color: bool, width: int) -> str:
    file = io.StringIO()
    show(_console(file, color=color, width=width), *views)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip("\n").split("\n"))


def as_html(*views: RenderableType, width: int = WIDTH) -> str:
    """Renders views as one preformatted HTML block with inline styles; text has the page's colour.

    In a narrow page sentences wrap between words, and tables scroll.
    """
    console = _console(io.StringIO(), color=True, width=width)
    parts: list[str] = []
    for shown in views:
        lines = console.render_lines(shown, pad=False)
        part = "\n".join("".join(_span(segment) for segment in line if not segment.control) for line in lines)
        parts.append(part if isinstance(shown, str) else f'<span style="white-space:pre">{part}</span>')
    text = "\n".join(parts)
    # JupyterLab's own rules break lines within words.
    return f'<pre style="margin:0;overflow-x:auto;word-break:normal;line-height:1.35;font-size:12px">{text}</pre>'


def _span(segment: Segment) -> str:
    text, style = escape(segment.text), segment.style
    if style is None or not segment.text.strip():
        return text
    rules = []
    if style.color is not None and style.color.name in COLOURS:
        rules.append(f"color:{COLOURS[style.color.name]}")
    if style.bold:
        rules.append("font-weight:600")
    if style.italic:
        rules.append("font-style:italic")
    if style.dim:
        rules.append("opacity:.75")
    return f'<span style="{";".join(rules)}">{text}</span>' if rules else text


LARGEST = 299_000
"""Maximum bytes of an output with its picture and text; with a panel's frame it stays below 300,000."""

BESIDE = frozenset(
    {"Roofline", "Share of its roof that each version reaches", "Resources", "Memory traffic and its cost, per launch"}
)
"""Titles of further charts, which are in a collapsed section."""


def views_bundle(*views: Any) -> dict[str, Any]:
    """Returns terminal views as an output."""
    return {"text/plain": as_text(*views), "text/html": as_html(*views)}


def checks_bundle(checks: Sequence[Check]) -> dict[str, Any]:
    """Returns the checks of `doctor` as an output; its table shows one entry per check in a narrow notebook."""
    from kernelmate.report.machine import doctor_parts, doctor_view

    return {"text/plain": as_text(doctor_view(checks)), "text/html": view(doctor_parts(checks))}


def verdict_bundle(
    verdicts: tuple[Verdict, ...], kernel: Kernel, remarks: tuple[str, ...] = (), *, charts: bool = True
) -> dict[str, Any]:
    """Returns the output of verdicts on a cell's kernel, one per instance.

    `charts=False` leaves out the collapsed charts, which take time to draw.
    """
    from kernelmate.report.console import lines
    from kernelmate.report.tables import verdict_view

    sources = sources_of(kernel)
    views: list[Any] = []
    full: list[str] = []
    small: list[str] = []
    scenes: list[Scene] = []
    for verdict in verdicts:
        views += [*([""] if views else []), verdict_view(verdict, sources)]
        versions = [ChartVersion(words.kernel_words(verdict), verdict)]
        scenes += result_scenes(versions) if charts else []
        full += verdict_parts(verdict, sources, more=_more_charts(versions) if charts else ())
        small += verdict_parts(verdict, sources)
    said = as_text(*views, *([lines(remarks)] if remarks else []))
    return _bundle(said, (full, small), scenes, remarks)


def optimization_bundle(
    optimization: Optimization, baseline: Kernel, shown: int | None = None, accepted: int | None = None
) -> dict[str, Any]:
    """Returns the output of a search.

    Args:
        optimization: the search's result.
        baseline: the original kernel.
        shown: number of the displayed candidate, from 1; None for the best.
        accepted: number of the candidate that the user has accepted; None if there is none.
    """
    from kernelmate.report.versions import optimization_view

    said = as_text(*optimization_view(optimization, baseline, sources_of(baseline)))
    versions = charted_versions(optimization, shown)
    full = optimization_parts(optimization, baseline, shown=shown, accepted=accepted, more=_more_charts(versions))
    small = optimization_parts(optimization, baseline, shown=shown, accepted=accepted)
    return _bundle(said, (full, small), result_scenes(versions))


def handle_bundle(handle: KernelHandle) -> dict[str, Any]:
    """Returns the output of a bound kernel: its verdict and description."""
    bundle = verdict_bundle((handle.verdict,), handle.version.kernel)
    return {**bundle, "text/plain": repr(handle)}


def panel_bundle(handle: KernelHandle, optimization: Optimization | None, mark: str) -> dict[str, Any]:
    """Returns the static output of a panel: the last search or else the verdict, and the version in force.

    Args:
        handle: the panel's kernel.
        optimization: the displayed search result; None before any search.
        mark: CSS class of the output, by which the live panel finds and hides it.
    """
    base = handle.searched.kernel
    bundle = handle_bundle(handle) if optimization is None else optimization_bundle(optimization, base)
    said = (
        f"In use: the version of {handle.version.author}, accepted."
        if handle.can_revert
        else "In use: the cell's own version."
    )
    page = f'<div class="{mark}">{bundle["text/html"]}<p>{text(said)}</p></div>'
    return {**bundle, "text/plain": f"{bundle['text/plain']}\n{said}", "text/html": page}


# ---------------------------------------------------------------------------------------------------- the bundle


def _bundle(
    said: str, pages: Sequence[Sequence[str]], scenes: Sequence[Scene], notes: Iterable[str] = ()
) -> dict[str, Any]:
    """Returns the output in all formats; the HTML is the first page below the size limit, else the text."""
    bundle: dict[str, Any] = {"text/plain": _shortened(said)}
    drawn = png(scenes) if scenes else None
    if drawn is not None:
        bundle["image/png"] = base64.b64encode(drawn).decode()
    room = LARGEST - sum(map(len, map(str, bundle.values())))
    below = bullets(notes)
    shown = (view([*parts, *below]) for parts in pages)
    fitting = (page for page in shown if len(page.encode()) < room)
    bundle["text/html"] = next(fitting, None) or as_html(_shortened(said))
    return bundle


def _shortened(said: str, most: int = 60_000) -> str:
    return said if len(said) <= most else said[:most] + "\n[shortened]"


def _more_charts(versions: Sequence[ChartVersion]) -> list[str]:
    """Returns the report's further charts as HTML: roofline, resources, counters."""
    drawn = (
        f"<p><strong>{text(title)}</strong></p>{picture(scene_of(title, figure))}"
        for title, figure in figures(versions).items()
        if title in BESIDE
    )
    return list(drawn)
