"""Roofline chart: versions under the roofs of their GPU. Measured points are solid, predicted ones hollow and labelled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.records import Roofline, Roofs, Work
from kernelmate.report.chart import (
    BASELINE,
    BLUE,
    GREY,
    SKY,
    VERMILION,
    ChartVersion,
    Figure,
    Trace,
    marker,
    safe,
    with_layout,
)
from kernelmate.report.roofline import (
    PRECISION_WORDS,
    SOURCE_WORDS,
    bound_words,
    flop_words,
    share_words,
    under_one_roof,
)
from kernelmate.report.words import byte_words, number, time_words

ORANGE, GREEN, PURPLE = "#E69F00", "#009E73", "#CC79A7"
_VERSIONS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE, "#8C6D00", "#4C4CB0")
"""Colours of the candidates, in order; those of Okabe and Ito first."""

_PREDICTED = "predicted, not measured: confirm on a GPU"
_POINT_PX = 14
_ROOF_COLOR = "#808080"


def roofline_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns the chart of operations per second over operations per byte, both logarithmic.

    The result is None if no version has a point.

    Every version has a point per memory level: at its DRAM traffic with a cold L2, and at its L2 and L1 traffic
    directly after an equal launch.
    """
    placed = [(shown, shown.verdict.roofline) for shown in versions if shown.verdict.roofline is not None]
    points = [(shown, line, list(_points(line))) for shown, line in placed if sum(line.work.flops.values())]
    drawn = [(shown, line, found) for shown, line, found in points if found]
    if not drawn:
        return None
    lines = [line for _, line, _ in drawn]
    xs = [x for _, _, found in drawn for _, x, _ in found] + [line.ridge for line in lines]
    ys = [y for _, _, found in drawn for _, _, y in found] + [line.peak_tflops for line in lines]
    low, high = min(xs) / 4, max(xs) * 6
    first = 1 if drawn[0][0].label == BASELINE else 0
    marks = [_version(shown, line, found, place - first) for place, (shown, line, found) in enumerate(drawn)]
    return with_layout(
        [*_roofs(lines, low, high), *marks, *_keys(lines)],
        480,
        xaxis={
            "title": {"text": "operations per byte (FLOP/byte)"}, "type": "log", "range": _log(low, high), "dtick": 1,
        },
        yaxis={"title": {"text": "TFLOP/s"}, "type": "log", "range": _log(min(ys) / 4, max(ys) * 3), "dtick": 1},
        legend={"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"},
        showlegend=True,
        annotations=_names(lines, low, high),
    )  # fmt: skip


def _keys(lines: Sequence[Roofline]) -> Iterator[Trace]:
    """Yields the legend entries that explain the marks."""
    for level in _LEVELS:
        yield _key(f"{level.symbol}: {level.key}", level.symbol, hollow=False)
    if any(line.kind == "predicted" for line in lines):
        yield _key(f"hollow: {_PREDICTED}", "circle", hollow=True)


def _key(name: str, symbol: str, *, hollow: bool) -> Trace:
    mark = _marker(_ROOF_COLOR, symbol, hollow=hollow)
    return {"type": "scatter", "name": name, "mode": "markers", "x": [None], "y": [None], "marker": mark}


@dataclass(frozen=True, slots=True)
class _Level:
    """One memory level: its mark in the chart, and the functions that give its figures of a launch."""

    name: str
    symbol: str
    dash: str
    key: str
    gbps: Callable[[Roofs], float]
    intensity: Callable[[Roofline], float | None]
    needs_us: Callable[[Roofline], float]
    time_us: Callable[[Roofline], float | None]
    moved: Callable[[Work], float]


_LEVELS = (
    _Level("DRAM", "circle", "solid", "bytes of DRAM, with nothing in L2", lambda it: it.dram_gbps, lambda it: it.intensity,
           lambda it: it.dram_us, lambda it: it.cold_us, lambda it: it.dram_bytes),
    _Level("L2", "diamond", "dash", "bytes of L2 (by a model), L2 warm", lambda it: it.l2_gbps, lambda it: it.l2_intensity,
           lambda it: it.l2_us, lambda it: it.warm_us, lambda it: it.l2_bytes),
    _Level("L1", "square", "dot", "bytes of L1, L2 warm", lambda it: it.l1_gbps, lambda it: it.l1_intensity,
           lambda it: it.l1_us, lambda it: it.warm_us, lambda it: it.l1_bytes),
)  # fmt: skip


def _points(line: Roofline) -> Iterator[tuple[_Level, float, float]]:
    """Yields level, intensity, and operation rate (10^12/s) of a version's points."""
    done = sum(line.work.flops.values())
    for level in _LEVELS:
        intensity, time = level.intensity(line), level.time_us(line)
        if intensity and time:
            yield level, intensity, done / time / 1e6


def _version(shown: ChartVersion, line: Roofline, found: Sequence[tuple[_Level, float, float]], index: int) -> Trace:
    color = GREY if shown.label == BASELINE else _VERSIONS[index % len(_VERSIONS)]
    predicted = line.kind == "predicted"
    kind = _PREDICTED if predicted else "measured"
    return {
        "type": "scatter",
        "name": safe(shown.label),
        "mode": "markers",
        "x": [x for _, x, _ in found],
        "y": [y for _, _, y in found],
        "customdata": [f"{_details(level, line)}<br>{kind}" for level, _, _ in found],
        "hovertemplate": f"{safe(shown.label)}<br>%{{x:.3g}} FLOP/byte, %{{y:.3g}} TFLOP/s<br>%{{customdata}}<extra></extra>",
        "marker": _marker(color, [level.symbol for level, _, _ in found], hollow=predicted),
    }


def _details(level: _Level, line: Roofline) -> str:
    time = level.time_us(line)
    share = None if not time else level.needs_us(line) / time
    moved = byte_words(level.moved(line.work))
    return f"{level.key}: {share_words(share, line)} of {level.name}'s roof, {moved} in {time_words(time)}"


def _marker(color: str, symbol: str | list[str], *, hollow: bool) -> dict[str, Any]:
    if not hollow:
        return {"color": color, "symbol": symbol, "size": _POINT_PX}
    hollowed = [f"{one}-open" for one in symbol] if isinstance(symbol, list) else f"{symbol}-open"
    return {"color": color, "symbol": hollowed, "size": _POINT_PX, "line": {"width": 2.5}}


def _roofs(lines: Sequence[Roofline], low: float, high: float) -> Iterator[Trace]:
    """Yields the slanted memory roofs and the flat arithmetic roofs, each once, with their figures in the legend."""
    roofs = lines[0].roofs
    top = max(roofs.tflops[name] for name in _precisions(lines))
    said = SOURCE_WORDS[roofs.source]
    for level in _LEVELS:
        gbps = level.gbps(roofs)
        end = min(max(top * 1e3 / gbps, low), high)
        ends = ((low, low * gbps / 1e3), (end, end * gbps / 1e3))
        yield _roof(f"{level.name}: {number(gbps)} GB/s", said, ends, level.dash)
    for name in _precisions(lines):
        peak = roofs.tflops[name]
        ends = ((min(max(peak * 1e3 / roofs.l1_gbps, low), high), peak), (high, peak))
        words = f"{PRECISION_WORDS.get(name, name)}: {peak:.3g} TFLOP/s"
        yield _roof(words, said, ends, "solid" if peak == top else "dot")


def _roof(name: str, said: str, ends: tuple[tuple[float, float], tuple[float, float]], dash: str) -> Trace:
    (x, y), (further, higher) = ends
    return {
        "type": "scatter",
        "name": name,
        "x": [x, further],
        "y": [y, higher],
        "mode": "lines",
        "line": {"color": _ROOF_COLOR, "dash": dash, "width": 2},
        "hovertemplate": f"{name} {said}<extra></extra>",
    }


def _precisions(lines: Sequence[Roofline]) -> list[str]:
    used = {name for line in lines for name, flops in line.work.flops.items() if flops}
    return [name for name in lines[0].roofs.tflops if name in used] or ["fp32"]


def _names(lines: Sequence[Roofline], low: float, high: float) -> list[dict[str, Any]]:
    """Returns the annotations that name the roofs beside their lines."""
    roofs = lines[0].roofs
    top = max(roofs.tflops[name] for name in _precisions(lines))
    found = []
    for level in _LEVELS:
        # In the middle of the slanted part, the lowest name is below its line and the others above, where no other line
        # is.
        gbps = level.gbps(roofs)
        middle = math.sqrt(low * min(max(top * 1e3 / gbps, low), high))
        side, end, aside = ("left", "top", 1.1) if level.name == "DRAM" else ("right", "bottom", 1 / 1.1)
        found.append((level.name, middle * aside, middle * gbps / 1e3, side, end))
    found += [
        (PRECISION_WORDS.get(name, name), high / 1.1, roofs.tflops[name], "right", "bottom")
        for name in _precisions(lines)
    ]
    return [
        {
            "text": text, "x": math.log10(x), "y": math.log10(y), "xanchor": side, "yanchor": end, "showarrow": False,
            "font": {"size": 12},
        }
        for text, x, y, side, end in found
    ]  # fmt: skip


def _log(low: float, high: float) -> list[float]:
    return [math.log10(low), math.log10(high)]


def share_figure(versions: Sequence[ChartVersion]) -> Figure | None:
    """Returns a chart of the fraction of the roof that each version reaches, with a cold and a warm L2.

    The roof is that of the least work among the versions.

    The result is None if unknown.
    """
    placed = [(shown, shown.verdict.roofline) for shown in versions if shown.verdict.roofline is not None]
    together = under_one_roof([line for _, line in placed])
    placed = [(shown, line) for (shown, _), line in zip(placed, together, strict=True)]
    known = [(shown, line) for shown, line in placed if line.cold is not None or line.warm is not None]
    if not known:
        return None
    bars = []
    for name, attribute, color in (("with nothing in L2", "cold", BLUE), ("L2 warm", "warm", ORANGE)):
        for kind in ("measured", "predicted"):
            group = [(shown, line) for shown, line in known if line.kind == kind]
            shares = [(shown, line, getattr(line, attribute)) for shown, line in group]
            there = [(shown, line, share) for shown, line, share in shares if share is not None]
            if there:
                bars.append(_share_bars(name, color, kind, there))
    most = max(max(line.cold or 0, line.warm or 0) for _, line in known) * 100
    names = [safe(shown.label) for shown, _ in known]
    return with_layout(
        bars,
        140 + 44 * len(known),
        yaxis={"autorange": "reversed", "categoryorder": "array", "categoryarray": names},
        xaxis={"title": {"text": "% of the roof that is above it"}, "range": [0, max(100.0, most * 1.1)]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        showlegend=True,
        barmode="group",
    )


def _share_bars(name: str, color: str, kind: str, there: Sequence[tuple[ChartVersion, Roofline, float]]) -> Trace:
    return {
        "type": "bar",
        "name": name if kind == "measured" else f"{name}, predicted",
        "orientation": "h",
        "y": [safe(shown.label) for shown, _, _ in there],
        "x": [share * 100 for _, _, share in there],
        "text": [share_words(share, line) for _, line, share in there],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [
            f"{flop_words(sum(line.work.flops.values()))}, {safe(bound_words(line))}" for _, line, _ in there
        ],
        "hovertemplate": "%{y}: %{text}<br>%{customdata}<extra></extra>",
        "marker": marker(color, hollow=kind == "predicted"),
    }
