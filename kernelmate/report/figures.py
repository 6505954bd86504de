"""Charts of versions side by side, for every kind of figure that any version has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelmate.records import Case, Optimization, Verdict
from kernelmate.report.chart import (
    BASELINE,
    BLUE,
    GREY,
    ROW_PX,
    SKY,
    VERMILION,
    ChartVersion,
    Figure,
    Trace,
    finished,
    labels_of,
    safe,
    version_color,
)
from kernelmate.report.roofline_chart import roofline_figure, share_figure
from kernelmate.report.time_chart import timing_figure
from kernelmate.report.words import (
    LIMITER_WORDS,
    byte_words,
    case_words,
    error_words,
    global_bytes,
    number,
    percent,
    shared_bytes,
    size_words,
    wrong_words,
)

MOST_VERSIONS = 9
"""Maximum of versions in a chart: the baseline and the first candidates."""
MOST_NAMED = 3
"""Number of failing sizes named below the heat map."""
ACROSS = 3
"""Number of small charts in a row."""


def versions_of(optimization: Optimization) -> list[ChartVersion]:
    """Returns the baseline and the leading candidates, numbered as in every table."""
    shown = [ChartVersion(BASELINE, optimization.baseline)]
    for index, judged in enumerate(optimization.candidates[: MOST_VERSIONS - 1], 1):
        name = judged.candidate.author.removeprefix("recipe:")
        shown.append(
            ChartVersion(f"{index} {name}" + (" (best)" if index - 1 == optimization.best else ""), judged.verdict)
        )
    return shown


def figures(versions: Sequence[ChartVersion]) -> dict[str, Figure]:
    """Returns every chart with data, by its title."""
    made = {title: maker(versions) for title, maker in _MAKERS.items()}
    return {title: figure for title, figure in made.items() if figure is not None}


# ------------------------------------------------------------------------------------------------- correctness


def correctness_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns a heat map of sizes by versions: right, wrong, or unknown; None if nothing ran."""
    sizes: dict[str, None] = {}
    for version in versions:
        sizes |= {size_words(case.size): None for case in version.verdict.cases}
    if not sizes:
        return None
    rows = list(sizes)
    cells = [[_cell(version.verdict, row) for version in versions] for row in rows]
    failing = [row for row, line in zip(rows, cells, strict=True) if any(cell[0] == 0 for cell in line)]
    map_of_sizes: Trace = {
        "type": "heatmap",
        "x": labels_of(versions),
        "y": [safe(row) for row in rows],
        "z": [[cell[0] for cell in line] for line in cells],
        "text": [[cell[1] for cell in line] for line in cells],
        "customdata": [[cell[2] for cell in line] for line in cells],
        "texttemplate": "%{text}",
        "hovertemplate": "%{x}<br>%{y}<br>%{customdata}<extra></extra>",
        "zmin": 0,
        "zmax": 3,
        "colorscale": _steps((VERMILION, GREY, SKY, BLUE)),
        "showscale": False,
        "xgap": 3,
        "ygap": 3,
    }
    rest = f"; and {len(failing) - MOST_NAMED} more" if len(failing) > MOST_NAMED else ""
    remark = f"wrong at: {safe('; '.join(failing[:MOST_NAMED]))}{rest}" if failing else "no size is wrong"
    return finished(
        [map_of_sizes],
        150 + 28 * len(rows),
        yaxis={"autorange": "reversed", "showgrid": False},
        xaxis={"side": "top", "showgrid": False},
        annotations=[_remark(remark)],
    )


def _steps(colors: Sequence[str]) -> list[list[Any]]:
    """Returns a colour scale of flat steps, one per integer."""
    edges = [index / len(colors) for index in range(len(colors) + 1)]
    return [[edge, color] for low, high, color in zip(edges, edges[1:], colors, strict=False) for edge in (low, high)]


def _cell(verdict: Verdict, size: str) -> tuple[int, str, str]:
    """Returns a size's step of the scale, its word and its details."""
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


def occupancy_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns a chart of theoretical occupancy with its limiter; None if no version has one."""
    versions = [version for version in versions if version.verdict.occupancy is not None]
    if not versions:
        return None
    values, texts = [], []
    for version in versions:
        occupancy = version.verdict.occupancy
        values.append(None if occupancy is None else occupancy.theoretical * 100)
        limiter = "" if occupancy is None else LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)
        texts.append("unknown" if occupancy is None else f"{percent(occupancy.theoretical)}, limited by {limiter}")
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "y": labels_of(versions),
        "x": values,
        "text": texts,
        "textposition": "auto",
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "marker": {"color": [version_color(version) for version in versions]},
    }
    return finished(
        [bars],
        100 + ROW_PX * len(versions),
        yaxis={"autorange": "reversed"},
        xaxis={"title": {"text": "% of the SM's warps"}, "range": [0, 100]},
    )


Panel = tuple[str, Callable[[Verdict], float | None], Callable[[float], str]]

RESOURCE_PANELS: tuple[Panel, ...] = (
    ("registers per thread", lambda it: None if it.resources is None else it.resources.registers, number),
    (
        "shared per block, B",
        lambda it: None if it.resources is None else shared_bytes(it.resources),
        byte_words,
    ),
    (
        "local per thread, B",
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
    ("global bytes moved", lambda it: global_bytes(it.counters), byte_words),
    ("global load sectors", _counted("global_load_sectors"), number),
    ("global store sectors", _counted("global_store_sectors"), number),
    ("shared wavefronts", _counted("shared_load_wavefronts", "shared_store_wavefronts"), number),
    ("bank conflicts", _counted("bank_conflicts"), number),
    ("divergent branches", _counted("divergent_branches"), number),
)


def resources_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Registers, shared and local memory; None where no version compiled."""
    return _panels(versions, RESOURCE_PANELS)


def counters_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns a chart of memory requests of a launch; None if nothing was counted."""
    return _panels(versions, COUNTER_PANELS)


def _panels(versions: Sequence[ChartVersion], panels: Sequence[Panel]) -> Figure | None:
    """Returns one small bar chart for each figure that any version has, three in a row."""
    known = [panel for panel in panels if any(panel[1](version.verdict) is not None for version in versions)]
    if not known:
        return None
    versions = [version for version in versions if any(value(version.verdict) is not None for _, value, _ in known)]
    layout: dict[str, Any] = {"annotations": [], "showlegend": False}
    bars = []
    for place, ((title, value, words), (left, right, low, high)) in enumerate(
        zip(known, _grid(len(known)), strict=True)
    ):
        values = [value(version.verdict) for version in versions]
        mark = "" if place == 0 else str(place + 1)
        first = place - place % ACROSS
        bars.append(_small_bars(versions, values, words, mark))
        most = max((one for one in values if one is not None), default=0.0)
        layout[f"xaxis{mark}"] = {
            "anchor": f"y{mark}", "domain": [left, right], "range": [0, most * 1.7 or 1], "nticks": 4,
        }  # fmt: skip
        layout[f"yaxis{mark}"] = {"anchor": f"x{mark}", "domain": [low, high], "autorange": "reversed"}
        if place != first:  # only the first chart of a row shows the versions' names
            layout[f"yaxis{mark}"] |= {"matches": f"y{first + 1}" if first else "y", "showticklabels": False}
        layout["annotations"].append(_head(title, (left + right) / 2, high))
    rows = -(-len(known) // ACROSS)
    return finished(bars, rows * (80 + ROW_PX * len(versions)) + 20, **layout)


def _small_bars(
    versions: Sequence[ChartVersion], values: Sequence[float | None], words: Callable[[float], str], mark: str
) -> Trace:
    return {
        "type": "bar",
        "xaxis": f"x{mark}",
        "yaxis": f"y{mark}",
        "orientation": "h",
        "y": labels_of(versions),
        "x": values,
        "text": ["unknown" if one is None else words(one) for one in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "marker": {"color": [version_color(version) for version in versions]},
    }


def _grid(count: int) -> Iterator[tuple[float, float, float, float]]:
    """Yields left, right, lower and upper edge of small charts, row by row from the top, as fractions of the whole."""
    columns, rows = min(ACROSS, count), -(-count // ACROSS)
    gap, between = 0.05, 0.38 / rows
    wide, high = (1 - gap * (columns - 1)) / columns, (1 - between * (rows - 1)) / rows
    for place in range(count):
        left, top = place % columns * (wide + gap), 1 - place // columns * (high + between)
        yield left, left + wide, max(top - high, 0.0), top


def _head(text: str, x: float, y: float) -> dict[str, Any]:
    """The title of a small chart, above its middle."""
    return {
        "text": text, "showarrow": False, "x": x, "y": y, "xref": "paper", "yref": "paper", "xanchor": "center",
        "yanchor": "bottom", "font": {"size": 13},
    }  # fmt: skip


_MAKERS: dict[str, Callable[[Sequence[ChartVersion]], Figure | None]] = {
    "Correctness per size": correctness_figure,
    "Time at the headline size": timing_figure,
    "Roofline": roofline_figure,
    "Share of its roof that each version reaches": share_figure,
    "Theoretical occupancy, and what limits it": occupancy_figure,
    "Resources": resources_figure,
    "Memory traffic and its cost, per launch": counters_figure,
}
