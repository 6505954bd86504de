"""Chart of versions' times: measured ones solid, predicted ones hollow, also beside measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kernelmate.records import Timing
from kernelmate.report.chart import (
    GREY,
    ROW_PX,
    VERMILION,
    ChartVersion,
    Figure,
    Trace,
    finished,
    labels_of,
    marker,
    safe,
    version_color,
)
from kernelmate.report.words import number, time_words

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
            furthest = max(furthest, *(_end(timing) for _, timing in group))
    beside = [(version, version.verdict.predicted) for version in versions if version.verdict.predicted is not None]
    if beside:
        data.append(_beside(beside))
        furthest = max(furthest, *(_end(timing) for _, timing in beside))
    return finished(
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
        "x": [max(_end(timing), _predicted_end(version)) for version, timing in group],
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
        "array": [_end(timing) - timing.median_us for timing in times],
        "arrayminus": [timing.median_us - timing.ci95_us[0] for timing in times],
        "color": color,
    }


def _end(timing: Timing) -> float:
    """Returns the upper end of a time's interval; the time itself without one."""
    high = timing.ci95_us[1]
    return high if math.isfinite(high) else timing.median_us


def _predicted_end(version: ChartVersion) -> float:
    predicted = version.verdict.predicted
    return 0.0 if predicted is None else _end(predicted)
