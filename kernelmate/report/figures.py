"""Charts of versions side by side. Plotly is imported when one is made, not before.

Colours are those of Okabe and Ito, told apart with every common colour vision; text and patterns say the same again.
What is predicted is drawn hollow and hatched and is labelled so; what is measured is drawn solid.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelmate.errors import EnvironmentFailed
from kernelmate.records import Case, Optimization, Verdict
from kernelmate.report.words import (
    LIMITER_WORDS,
    byte_words,
    case_words,
    error_words,
    global_bytes,
    number,
    one_line,
    percent,
    shared_bytes,
    size_words,
    wrong_words,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, SKY, VERMILION, GREY = "#0072B2", "#56B4E9", "#D55E00", "#6E6E6E"
CLEAR = "rgba(0,0,0,0)"
MOST_VERSIONS = 9
"""The baseline and the first candidates that a chart shows; more would not be readable."""
MOST_NAMED = 3
"""Failing sizes named below the heat map."""
ROW_PX = 34
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Shown:
    """One version in a chart."""

    label: str
    verdict: Verdict


def versions_of(optimization: Optimization) -> list[Shown]:
    """The baseline and the leading candidates, as numbered in every table."""
    shown = [Shown(BASELINE, optimization.baseline)]
    for index, judged in enumerate(optimization.candidates[: MOST_VERSIONS - 1], 1):
        name = judged.candidate.author.removeprefix("recipe:")
        shown.append(Shown(f"{index} {name}" + (" (best)" if index - 1 == optimization.best else ""), judged.verdict))
    return shown


def figures(versions: Sequence[Shown]) -> dict[str, go.Figure]:
    """Every chart there is something to draw in, by its title.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    from kernelmate.report.roofline_chart import roofline_figure, share_figure
    from kernelmate.report.time_chart import timing_figure

    makers: dict[str, Callable[[Sequence[Shown]], go.Figure | None]] = {
        "Correctness per size": correctness_figure,
        "Time at the headline size": timing_figure,
        "Roofline": roofline_figure,
        "Share of its roof that each version reaches": share_figure,
        "Theoretical occupancy, and what limits it": occupancy_figure,
        "Resources": resources_figure,
        "Memory traffic and its cost, per launch": counters_figure,
    }
    made = {title: maker(versions) for title, maker in makers.items()}
    return {title: figure for title, figure in made.items() if figure is not None}


def template(*, dark: bool) -> dict[str, Any]:
    """The layout template of a light or a dark page; the ground stays clear, so that the page's shows."""
    ink, line = ("#e6e6e6", "#4a4a4a") if dark else ("#1f1f1f", "#d0d0d0")
    axis = {"gridcolor": line, "zerolinecolor": line, "linecolor": line, "automargin": True}
    layout = {
        "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "xaxis": axis,
        "yaxis": axis,
        "hoverlabel": {"font": {"family": "ui-monospace, monospace"}},
    }
    return {"layout": layout}


def plotly() -> Any:
    """Plotly's graph objects.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise EnvironmentFailed(
            "Charts need plotly, which is not installed.", hint="pip install 'kernelmate[report]'"
        ) from error
    return go


def safe(text: str) -> str:
    """Text that Plotly shows as it is: it reads tags otherwise."""
    return html.escape(one_line(text))


def labels_of(versions: Sequence[Shown]) -> list[str]:
    """The versions' names, as Plotly may show them."""
    return [safe(version.label) for version in versions]


@functools.cache
def _light() -> Any:
    """The light template as Plotly's own object: to make one of plain values takes longer than the rest of a chart."""
    return plotly().layout.Template(template(dark=False))


def finished(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    """A chart with what all of them share; the height is in pixels."""
    figure.update_layout(
        template=_light(),
        height=height,
        margin={"l": 10, "r": 50, "t": 30, "b": 40},
        modebar={"orientation": "v"},
        **layout,
    )
    return figure


# ------------------------------------------------------------------------------------------------- correctness


def correctness_figure(versions: Sequence[Shown]) -> go.Figure | None:
    """Sizes by versions: right, wrong, or not known; None where nothing was run."""
    sizes: dict[str, None] = {}
    for version in versions:
        sizes |= {size_words(case.size): None for case in version.verdict.cases}
    if not sizes:
        return None
    go = plotly()
    rows = list(sizes)
    cells = [[_cell(version.verdict, row) for version in versions] for row in rows]
    failing = [row for row, line in zip(rows, cells, strict=True) if any(cell[0] == 0 for cell in line)]
    figure = go.Figure(
        go.Heatmap(
            x=labels_of(versions),
            y=[safe(row) for row in rows],
            z=[[cell[0] for cell in line] for line in cells],
            text=[[cell[1] for cell in line] for line in cells],
            customdata=[[cell[2] for cell in line] for line in cells],
            texttemplate="%{text}",
            hovertemplate="%{x}<br>%{y}<br>%{customdata}<extra></extra>",
            zmin=0,
            zmax=3,
            colorscale=_steps((VERMILION, GREY, SKY, BLUE)),
            showscale=False,
            xgap=3,
            ygap=3,
        )
    )
    rest = f"; and {len(failing) - MOST_NAMED} more" if len(failing) > MOST_NAMED else ""
    title = f"wrong at: {safe('; '.join(failing[:MOST_NAMED]))}{rest}" if failing else "no size is wrong"
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(side="top", showgrid=False)
    return finished(figure, 150 + 28 * len(rows), xaxis_title=None, annotations=[_remark(title)])


def _steps(colors: Sequence[str]) -> list[list[Any]]:
    """A scale of flat steps, one for each whole number."""
    edges = [index / len(colors) for index in range(len(colors) + 1)]
    return [[edge, color] for low, high, color in zip(edges, edges[1:], colors, strict=False) for edge in (low, high)]


def _cell(verdict: Verdict, size: str) -> tuple[int, str, str]:
    """A size's step of the scale, its word and its details."""
    case: Case | None = next((one for one in verdict.cases if size_words(one.size) == size), None)
    if case is None:
        return 1, "not run", "not run" if verdict.compiled else "does not compile"
    word = case_words(case)[0]
    detail = f"{word}, {error_words(case)} at most" + (
        f"<br>{safe(wrong_words(case.first_wrong))}" if case.first_wrong else ""
    )
    if case.correct is False:
        return (1 if case.baseline_correct is False else 0), word, detail
    if case.correct is None:
        return 1, word, detail
    return (2 if case.baseline_correct is False else 3), word, detail


def _remark(text: str) -> dict[str, Any]:
    """A line below a chart."""
    return {
        "text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "y": 0, "yshift": -26,
        "xanchor": "left", "align": "left",
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------- bars


def version_color(version: Shown) -> str:
    """The baseline grey, candidates blue."""
    return GREY if version.label == BASELINE else BLUE


def marker(colors: list[str] | str, *, hollow: bool) -> dict[str, Any]:
    """Bars of what was measured are solid, of what is predicted hollow and hatched."""
    if not hollow:
        return {"color": colors}
    return {
        "color": CLEAR,
        "line": {"color": colors, "width": 2},
        "pattern": {
            "shape": "/",
            "fgcolor": colors,
            "bgcolor": CLEAR,
            "fillmode": "overlay",
            "size": 8,
            "solidity": 0.15,
        },
    }


def occupancy_figure(versions: Sequence[Shown]) -> go.Figure | None:
    """Theoretical occupancy with its limiter; None where no version has one."""
    versions = [version for version in versions if version.verdict.occupancy is not None]
    if not versions:
        return None
    go = plotly()
    figure = go.Figure()
    values, texts = [], []
    for version in versions:
        occupancy = version.verdict.occupancy
        values.append(None if occupancy is None else occupancy.theoretical * 100)
        limiter = "" if occupancy is None else LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)
        texts.append("unknown" if occupancy is None else f"{percent(occupancy.theoretical)}, limited by {limiter}")
    figure.add_bar(
        orientation="h",
        y=labels_of(versions),
        x=values,
        text=texts,
        textposition="auto",
        hovertemplate="%{y}: %{text}<extra></extra>",
        marker={"color": [version_color(version) for version in versions]},
    )
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title="% of the SM's warps", range=[0, 100])
    return finished(figure, 100 + ROW_PX * len(versions))


Panel = tuple[str, Callable[[Verdict], float | None], Callable[[float], str]]

RESOURCE_PANELS: tuple[Panel, ...] = (
    ("registers per thread", lambda it: None if it.resources is None else it.resources.registers, number),
    (
        "shared memory per block, bytes",
        lambda it: None if it.resources is None else shared_bytes(it.resources),
        byte_words,
    ),
    (
        "local memory per thread, bytes",
        lambda it: None if it.resources is None else it.resources.local_bytes,
        byte_words,
    ),
)


def _counted(*names: str) -> Callable[[Verdict], float | None]:
    def value(verdict: Verdict) -> float | None:
        known = [getattr(verdict.counters, name, None) for name in names]
        counted = [one for one in known if one is not None]
        return sum(counted) if counted else None

    return value


COUNTER_PANELS: tuple[Panel, ...] = (
    ("global memory moved, bytes", lambda it: global_bytes(it.counters), byte_words),
    ("global load sectors", _counted("global_load_sectors"), number),
    ("global store sectors", _counted("global_store_sectors"), number),
    ("shared wavefronts", _counted("shared_load_wavefronts", "shared_store_wavefronts"), number),
    ("bank conflicts", _counted("bank_conflicts"), number),
    ("divergent branches", _counted("divergent_branches"), number),
)


def resources_figure(versions: Sequence[Shown]) -> go.Figure | None:
    """Registers, shared and local memory; None where no version compiled."""
    return _panels(versions, RESOURCE_PANELS)


def counters_figure(versions: Sequence[Shown]) -> go.Figure | None:
    """What a launch asks of memory; None where nothing was counted."""
    return _panels(versions, COUNTER_PANELS)


def _panels(versions: Sequence[Shown], panels: Sequence[Panel]) -> go.Figure | None:
    """One small chart of bars for each figure that any version has, three in a row."""
    known = [panel for panel in panels if any(panel[1](version.verdict) is not None for version in versions)]
    if not known:
        return None
    plotly()
    from plotly.subplots import make_subplots

    versions = [version for version in versions if any(value(version.verdict) is not None for _, value, _ in known)]
    rows, columns = -(-len(known) // 3), min(3, len(known))
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        vertical_spacing=0.30 / rows,
        subplot_titles=[title for title, _, _ in known],
    )
    for place, (_, value, words) in enumerate(known):
        values = [value(version.verdict) for version in versions]
        figure.add_bar(
            row=place // 3 + 1,
            col=place % 3 + 1,
            orientation="h",
            y=labels_of(versions),
            x=values,
            text=["unknown" if one is None else words(one) for one in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text}<extra></extra>",
            marker={"color": [version_color(version) for version in versions]},
        )
        most = max((one for one in values if one is not None), default=0.0)
        figure.update_xaxes(range=[0, most * 1.45 or 1], row=place // 3 + 1, col=place % 3 + 1)
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(nticks=4)
    figure.update_annotations(font_size=13)
    return finished(figure, rows * (80 + ROW_PX * len(versions)) + 20, showlegend=False)
