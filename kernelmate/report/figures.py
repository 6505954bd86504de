"""Charts that compare versions, one for each kind of figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelmate.records import Case, Optimization, Timing, Verdict
from kernelmate.report.chart import (
    BASELINE,
    GREY,
    ROW_PX,
    VERMILION,
    ChartVersion,
    Figure,
    Trace,
    candidate_labels,
    interval_end,
    labels_of,
    marker,
    safe,
    version_color,
    with_layout,
)
from kernelmate.report.roofline_chart import roofline_figure, share_figure
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
    time_words,
    wrong_words,
)

PREDICTED = "predicted, not measured: confirm on a GPU"


def timing_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns the times at the headline size with intervals; None if nothing was timed."""
    timed = [(version, version.verdict.timing) for version in versions if version.verdict.timing is not None]
    if not timed:
        return None
    data: list[Trace] = []
    furthest = 0.0
    for kind in ("measured", "predicted"):
        group = [(version, timing) for version, timing in timed if timing.kind == kind]
        if group:
            data += _bars(group, hollow=kind == "predicted")
            furthest = max(furthest, *(interval_end(timing) for _, timing in group))
    beside = [(version, version.verdict.predicted) for version in versions if version.verdict.predicted is not None]
    if beside:
        data.append(_beside(beside))
        furthest = max(furthest, *(interval_end(timing) for _, timing in beside))
    return with_layout(
        data,
        130 + ROW_PX * len(timed),
        yaxis={"autorange": "reversed", "categoryorder": "array", "categoryarray": labels_of(versions)},
        xaxis={"title": {"text": "us, with 95% interval"}, "range": [0, furthest * (1.5 if beside else 1.4)]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        showlegend=True,
        barmode="overlay",
    )


def _bars(group: Sequence[tuple[ChartVersion, Timing]], *, hollow: bool) -> tuple[Trace, Trace]:
    """Returns bars of one kind, with figures beside the intervals: at a bar's end the interval's line would cover them."""
    times = [timing for _, timing in group]
    labels = labels_of([version for version, _ in group])
    kind, mark = ("predicted", "~") if hollow else ("measured", "")
    texts = [f"{mark}{time_words(timing.median_us)} {kind}{_against(version)}" for version, timing in group]
    bars: Trace = {
        "type": "bar",
        "name": PREDICTED if hollow else kind,
        "orientation": "h",
        "y": labels,
        "x": [timing.median_us for timing in times],
        "customdata": texts,
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
        "error_x": _interval(times, VERMILION),
        "marker": marker([version_color(version) for version, _ in group], hollow=hollow),
    }
    words: Trace = {
        "type": "scatter",
        "mode": "text",
        "y": labels,
        "x": [max(interval_end(timing), _predicted_end(version)) for version, timing in group],
        "text": [f" {text}" for text in texts],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return bars, words


def _beside(group: Sequence[tuple[ChartVersion, Timing]]) -> Trace:
    """Returns predictions for versions with measured times."""
    times = [timing for _, timing in group]
    return {
        "type": "scatter",
        "name": "hollow: predicted by the model",
        "mode": "markers",
        "y": labels_of([version for version, _ in group]),
        "x": [timing.median_us for timing in times],
        "customdata": [f"~{time_words(timing.median_us)} predicted" for timing in times],
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
        "error_x": {**_interval(times, GREY), "thickness": 1},
        "marker": {"symbol": "diamond-open", "size": 12, "color": VERMILION, "line": {"width": 2.5}},
    }


def _against(version: ChartVersion) -> str:
    """Formats the ratio of a measured time to the predicted one: `, 1.2x the predicted`."""
    timing, predicted = version.verdict.timing, version.verdict.predicted
    if timing is None or predicted is None or not predicted.median_us > 0:
        return ""
    return safe(f", {number(timing.median_us / predicted.median_us)}x the predicted")


def _interval(times: Sequence[Timing], color: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval_end(timing) - timing.median_us for timing in times],
        "arrayminus": [timing.median_us - timing.ci95_us[0] for timing in times],
        "color": color,
    }


def _predicted_end(version: ChartVersion) -> float:
    predicted = version.verdict.predicted
    return 0.0 if predicted is None else interval_end(predicted)


MOST_VERSIONS = 4
"""Maximum number of versions in a chart: the baseline and the first candidates."""
MOST_NAMED = 3
"""Maximum number of failing sizes named below the heat map."""
ACROSS = 3
"""Number of small charts in a row."""


def versions_of(optimization: Optimization) -> list[ChartVersion]:
    """Returns the baseline and the leading candidates, numbered as in every table."""
    shown = [ChartVersion(BASELINE, optimization.baseline)]
    labels = candidate_labels(optimization.candidates)
    for name, judged in zip(labels, optimization.candidates[: MOST_VERSIONS - 1], strict=False):
        shown.append(ChartVersion(name, judged.verdict))
    return shown


def figures(versions: Sequence[ChartVersion]) -> dict[str, Figure]:
    """Returns every chart with data, by its title."""
    made = {title: maker(versions) for title, maker in _MAKERS.items()}
    return {title: figure for title, figure in made.items() if figure is not None}


# ------------------------------------------------------------------------------------------------- correctness


def correctness_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns each size's largest error, in tolerances, on a logarithmic axis; None if nothing was compared."""
    compared = [[case for case in version.verdict.cases if case.correct is not None] for version in versions]
    if not any(compared):
        return None
    data: list[Trace] = [
        _errors(name, cases, version_color(version))
        for name, version, cases in zip(labels_of(versions), versions, compared, strict=True)
        if cases
    ]
    sizes = [size_words(case.size) for cases in compared for case in cases if case.correct is False]
    failing = list(dict.fromkeys(sizes))
    rest = f"; and {len(failing) - MOST_NAMED} more" if len(failing) > MOST_NAMED else ""
    remark = f"wrong at: {safe('; '.join(failing[:MOST_NAMED]))}{rest}" if failing else "no size is wrong"
    return with_layout(
        data,
        150 + ROW_PX * len(versions),
        yaxis={"autorange": "reversed", "categoryorder": "array", "categoryarray": labels_of(versions)},
        xaxis={"type": "log", "tickformat": "~g", "dtick": 1, "title": {"text": f"largest error, in tolerances: 1 is the limit<br>{remark}"}, "range": [-4, _decades(compared)]},
        shapes=[{"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": VERMILION, "width": 1, "dash": "dash"}}],
        showlegend=False,
    )  # fmt: skip


LEAST_ERROR, MOST_ERROR = 1e-4, 1e4
"""Errors, in tolerances, beyond which marks are drawn at the edge of the axis."""


def _errors(name: str, cases: Sequence[Case], color: str) -> Trace:
    """Returns a version's cases as marks: wrong ones as diamonds, grey where the baseline is wrong too."""
    wrong = [case.correct is False for case in cases]
    own = [VERMILION if bad and case.baseline_correct is not False else GREY if bad else color for bad, case in zip(wrong, cases, strict=True)]  # fmt: skip
    details = [
        f"{safe(size_words(case.size))}<br>{case_words(case)[0]}, {error_words(case)} at most"
        + (f"<br>{safe(wrong_words(case.first_wrong))}" if case.first_wrong else "")
        for case in cases
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "y": [name] * len(cases),
        "x": [_placed(case) for case in cases],
        "customdata": details,
        "hovertemplate": "%{y}<br>%{customdata}<extra></extra>",
        "marker": {"symbol": ["diamond" if bad else "circle" for bad in wrong], "color": own, "size": 9},
    }


def _placed(case: Case) -> float:
    """Returns a case's error, clamped to the axis; the largest for a wrong case without a finite error."""
    error = case.max_error
    if error is None or not math.isfinite(error):
        return MOST_ERROR if case.correct is False else LEAST_ERROR
    return min(max(error, LEAST_ERROR), MOST_ERROR)


def _decades(compared: Sequence[Sequence[Case]]) -> float:
    return math.log10(max(10.0, *(_placed(case) for cases in compared for case in cases))) + 0.2


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
    return with_layout(
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
    """Returns the figure of registers, shared and local memory; None if no version compiled."""
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
    return with_layout(bars, rows * (80 + ROW_PX * len(versions)) + 20, **layout)


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
    """Returns the title of a small chart, above its middle."""
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
