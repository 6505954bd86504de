"""Converts the report's Plotly figures to static scenes with the same data, axes and text.

Supports the figures of `kernelmate.report`: heat maps, horizontal bars with intervals, points, lines and texts, on
linear, logarithmic or categorical axes.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.report.chart import Figure
from kernelmate.report.drawing import INK, Anchor, LineShape, Mark, Rect, Scene, Shape, TextShape, shortened, text_width

WIDTH = 600.0
TOP, BOTTOM, RIGHT = 26.0, 46.0, 16.0
DASHES = {"dash": (7.0, 4.0), "dot": (2.0, 3.0)}


def scene_of(title: str, figure: Figure) -> Scene:
    """Converts a figure of the report to a scene.

    Args:
        title: the figure's title.
        figure: a figure of `kernelmate.report.figures.figures`.
    """
    return _Chart(title, figure.data, figure.layout).scene()


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps values to pixels. `names` are the categories of a categorical axis; `low` and `high` bound other values."""

    start: float
    length: float
    low: float
    high: float
    names: tuple[str, ...] = ()
    log: bool = False

    def at(self, value: Any) -> float:
        """Returns the pixel coordinate of a value; for a category, that of its centre."""
        if self.names:
            return self.start + self.length * (self.names.index(value) + 0.5) / len(self.names)
        number = math.log10(value) if self.log else float(value)
        return self.start + self.length * (number - self.low) / ((self.high - self.low) or 1.0)

    @property
    def step(self) -> float:
        """Width in pixels of one category."""
        return abs(self.length) / max(len(self.names), 1)


class _Chart:
    """Drawing state of one figure."""

    def __init__(self, title: str, data: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> None:
        self.title, self.data, self.layout = title, data, layout
        self.height = float(layout.get("height", 240))
        self.shapes: list[Shape] = []
        self.heat = any(trace["type"] == "heatmap" for trace in data)
        labels = [_clean(name) for trace in data for name in self._names(trace, "y")]
        self.left = max((text_width(one) for one in labels), default=44.0) + 12
        self.legend = list(self._legend_places()) if layout.get("showlegend") else []
        rows = max((top for _, _, _, top in self.legend), default=0.0)
        self.top = TOP + rows + (14 if self._has_titles() else 0)

    def scene(self) -> Scene:
        for xs, ys in self._panels():
            self._panel(xs, ys)
        self._legend()
        # Words beside a mark near the right edge get the room that they need.
        ends = [
            one.x + text_width(one.text, one.size)
            for one in self.shapes
            if isinstance(one, TextShape) and one.anchor == "start"
        ]
        return Scene(self.title, max([WIDTH, *ends]), self.height, tuple(self.shapes))

    # -------------------------------------------------------------------------------------------------- panels

    def _panels(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs of axes that traces are drawn on, each once."""
        seen = dict.fromkeys((trace.get("xaxis", "x"), trace.get("yaxis", "y")) for trace in self.data)
        yield from seen

    def _panel(self, xs: str, ys: str) -> None:
        traces = [one for one in self.data if (one.get("xaxis", "x"), one.get("yaxis", "y")) == (xs, ys)]
        x = self._axis(xs, traces, "x")
        y = self._axis(ys, traces, "y")
        if not self.heat:
            self._frame(x, y, xs, labelled=not y.names or x.start <= self.left + 1)
        else:
            self._heads(x, y)
        bars = [trace for trace in traces if trace["type"] == "bar"]
        for trace in traces:
            if trace["type"] == "heatmap":
                self._cells(trace, x, y)
            elif trace["type"] == "bar":
                grouped = self.layout.get("barmode") == "group"
                self._bars(trace, x, y, bars.index(trace) if grouped else 0, len(bars) if grouped else 1)
            else:
                self._points(trace, x, y)
        self._annotations(x, y, xs)

    def _axis(self, name: str, traces: Sequence[Mapping[str, Any]], side: str) -> _Axis:
        settings = self._settings(name)
        low, high = settings.get("domain", (0.0, 1.0))
        names = self._order(name, side, traces)
        if side == "x":
            inner = WIDTH - self.left - RIGHT
            start, length = self.left + inner * low, inner * (high - low)
        else:
            inner = self.height - self.top - BOTTOM
            start, length = self.top + inner * (1 - high), inner * (high - low)
            if not names:
                start, length = start + length, -length
        log = settings.get("type") == "log"
        bounds = settings.get("range") or _bounds(traces, side, log=log)
        return _Axis(start, length, float(bounds[0]), float(bounds[1]), names, log)

    def _settings(self, name: str) -> Mapping[str, Any]:
        key = f"{name[0]}axis{name[1:]}"
        found: Mapping[str, Any] = self.layout.get(key, {})
        return found

    def _order(self, name: str, side: str, traces: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Returns an axis's categories in the figure's order, without unused ones."""
        there = dict.fromkeys(one for trace in traces for one in self._names(trace, side))
        wanted = self._settings(name).get("categoryarray")
        return tuple(one for one in wanted if one in there) if wanted is not None else tuple(there)

    def _names(self, trace: Mapping[str, Any], side: str) -> list[str]:
        if trace["type"] == "heatmap" or (side == "y" and (trace["type"] == "bar" or trace.get("mode") == "text")):
            return [str(one) for one in trace[side]]
        values = list(trace.get(side, ()))
        return [str(one) for one in values] if values and isinstance(values[0], str) else []

    def _has_titles(self) -> bool:
        return any(one.get("yanchor") == "bottom" and one.get("yref") == "paper" for one in self._notes())

    def _notes(self) -> Sequence[Mapping[str, Any]]:
        notes: Sequence[Mapping[str, Any]] = self.layout.get("annotations", ())
        return notes

    # --------------------------------------------------------------------------------------------------- frames

    def _frame(self, x: _Axis, y: _Axis, xs: str, *, labelled: bool) -> None:
        top, bottom = (y.start, y.start + y.length) if y.names else (y.start + y.length, y.start)
        for value, words in _ticks(x):
            place = x.at(value)
            self.shapes.append(LineShape(((place, top), (place, bottom))))
            self.shapes.append(TextShape(place, bottom + 10, words, "middle", 11))
        if not y.names:
            for value, words in _ticks(y):
                place = y.at(value)
                self.shapes.append(LineShape(((x.start, place), (x.start + x.length, place))))
                self.shapes.append(TextShape(x.start - 6, place, words, "end", 11))
        elif labelled:
            self._labels(x, y, 12.0)
        title = _clean((self._settings(xs).get("title") or {}).get("text") or "")
        if title:
            self.shapes.append(TextShape(x.start + x.length / 2, bottom + 27, title, "middle", 11))

    def _heads(self, x: _Axis, y: _Axis) -> None:
        for name in x.names:
            self.shapes.append(TextShape(x.at(name), self.top - 12, shortened(_clean(name), x.step - 4), "middle", 11))
        self._labels(x, y, 11.0)

    def _labels(self, x: _Axis, y: _Axis, size: float) -> None:
        for name in y.names:
            self.shapes.append(TextShape(x.start - 8, y.at(name), _clean(name), "end", size))

    # --------------------------------------------------------------------------------------------------- traces

    def _cells(self, trace: Mapping[str, Any], x: _Axis, y: _Axis) -> None:
        colors = [color for edge, color in trace["colorscale"]][::2]
        for row, name in enumerate(map(str, trace["y"])):
            for column, version in enumerate(map(str, trace["x"])):
                color = colors[int(trace["z"][row][column])]
                left, top = x.at(version) - x.step / 2, y.at(name) - y.step / 2
                self.shapes.append(Rect(left + 1.5, top + 1.5, x.step - 3, y.step - 3, color))
                words = shortened(str(trace["text"][row][column]), x.step - 8)
                self.shapes.append(TextShape(x.at(version), y.at(name), words, "middle", 11, _on(color)))

    def _bars(self, trace: Mapping[str, Any], x: _Axis, y: _Axis, index: int, of: int) -> None:
        thick = y.step * 0.72 / of
        marker = trace["marker"]
        hollow = "pattern" in marker
        painted = marker["line"]["color"] if hollow else marker["color"]
        texts = trace.get("text") or [""] * len(trace["y"])
        for place, (name, value) in enumerate(zip(map(str, trace["y"]), trace["x"], strict=True)):
            color = painted if isinstance(painted, str) else painted[place]
            middle = y.at(name) + (index - (of - 1) / 2) * thick
            if value is not None:
                end = x.at(value)
                self.shapes.append(Rect(x.start, middle - thick / 2, end - x.start, thick - 1, color, hollow))
                self._interval(trace, place, value, x, middle)
            end = x.start if value is None else x.at(value)
            self._bar_text(_clean(str(texts[place])), trace, x, end, middle, color, hollow=hollow)

    def _bar_text(
        self, words: str, trace: Mapping[str, Any], x: _Axis, end: float, y: float, color: str, *, hollow: bool
    ) -> None:
        if not words:
            return
        inside = trace.get("textposition") == "auto" and text_width(words) + 12 < end - x.start
        if inside:
            self.shapes.append(TextShape(end - 6, y, words, "end", 11, INK if hollow else _on(color)))
        else:
            self.shapes.append(TextShape(end + 5, y, words, "start", 11))

    def _interval(self, trace: Mapping[str, Any], place: int, value: float, x: _Axis, y: float) -> None:
        error = trace.get("error_x")
        if not error:
            return
        low = x.at(max(value - error["arrayminus"][place], 0) if not x.log else value)
        high = x.at(value + error["array"][place])
        color = error.get("color", INK)
        self.shapes.append(LineShape(((low, y), (high, y)), color, 2))
        self.shapes += [LineShape(((end, y - 5), (end, y + 5)), color, 2) for end in (low, high)]

    def _points(self, trace: Mapping[str, Any], x: _Axis, y: _Axis) -> None:
        mode = trace.get("mode", "")
        if any(one is None for one in (*trace["x"], *trace["y"])):
            return  # appears in the legend only
        pairs = [(x.at(one), y.at(other)) for one, other in zip(trace["x"], trace["y"], strict=True)]
        if "lines" in mode and pairs:
            line = trace["line"]
            self.shapes.append(
                LineShape(tuple(pairs), line["color"], line.get("width", 2), DASHES.get(line.get("dash", ""), ()))
            )
        for place, (left, top) in enumerate(pairs):
            if "markers" in mode:
                marker = trace["marker"]
                symbol = marker["symbol"] if isinstance(marker["symbol"], str) else marker["symbol"][place]
                self._interval(trace, place, trace["x"][place], x, top)
                color = marker["color"] if isinstance(marker["color"], str) else marker["color"][place]
                self.shapes.append(Mark(left, top, symbol, color, marker.get("size", 11)))
            if "text" in mode:
                self.shapes.append(TextShape(left + 4, top, _clean(trace["text"][place]), "start", 11))

    # --------------------------------------------------------------------------------------------- around panels

    def _annotations(self, x: _Axis, y: _Axis, xs: str) -> None:
        for note in self._notes():
            words, size = _clean(note["text"]), float((note.get("font") or {}).get("size", 12))
            if note.get("xref") == "paper":
                inner = WIDTH - self.left - RIGHT
                middle, top = (
                    self.left + inner * note["x"],
                    self.top + (self.height - self.top - BOTTOM) * (1 - note["y"]),
                )
                if abs(middle - (x.start + x.length / 2)) < 2 and abs(top - y.start) < 2:
                    self.shapes.append(
                        TextShape(middle, top - 9, shortened(words, x.length + 8), "middle", 11, bold=True)
                    )
            elif note.get("xref", "x") == xs:
                anchors: dict[str, Anchor] = {"left": "start", "right": "end"}
                shift = 9 if note.get("yanchor") == "top" else -9
                place = (x.at(10 ** note["x"] if x.log else note["x"]), y.at(10 ** note["y"] if y.log else note["y"]))
                anchor = anchors.get(note.get("xanchor", ""), "middle")
                self.shapes.append(TextShape(place[0], place[1] + shift, words, anchor, size))

    def _legend_places(self) -> Iterator[tuple[Mapping[str, Any], str, float, float]]:
        """Yields the entries of the legend: trace, words, and the pixel coordinates of the entry."""
        left, top = 6.0, 12.0
        for trace in self.data:
            words = _clean(trace.get("name") or "")
            if not words or trace.get("showlegend") is False:
                continue
            width = 26 + text_width(words, 11) + 10
            if left + width > WIDTH and left > 6:
                left, top = 6.0, top + 16
            yield trace, words, left, top
            left += width

    def _legend(self) -> None:
        for trace, words, left, top in self.legend:
            self._swatch(trace, left, top)
            self.shapes.append(TextShape(left + 22, top, words, "start", 11))

    def _swatch(self, trace: Mapping[str, Any], left: float, top: float) -> None:
        if trace.get("mode") == "lines":
            line, ends = trace["line"], ((left, top), (left + 18, top))
            self.shapes.append(
                LineShape(ends, line["color"], line.get("width", 2), DASHES.get(line.get("dash", ""), ()))
            )
            return
        marker = trace.get("marker", {})
        color = (marker.get("line") or {}).get("color") if "pattern" in marker else marker.get("color", INK)
        color = color if isinstance(color, str) else (color or [INK])[0]
        if trace["type"] == "bar":
            self.shapes.append(Rect(left, top - 5, 16, 10, color, "pattern" in marker))
        else:
            symbol = marker.get("symbol", "circle")
            self.shapes.append(Mark(left + 8, top, symbol if isinstance(symbol, str) else symbol[0], color))


def _clean(text: str) -> str:
    """Returns Plotly text without its tags and entities."""
    return html.unescape(re.sub(r"<[^>]*>", " ", str(text))).strip()


def _on(color: str) -> str:
    """Returns the text colour that is readable on a background: black or white, by luminance contrast (WCAG 2.2)."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#111111" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _bounds(traces: Sequence[Mapping[str, Any]], side: str, *, log: bool) -> tuple[float, float]:
    values = [one for trace in traces for one in trace.get(side, ()) if isinstance(one, int | float)]
    if not values:
        return 0.0, 1.0
    if log:
        return math.log10(min(values)) - 0.2, math.log10(max(values)) + 0.2
    return min(0.0, *values), max(values) * 1.1 or 1.0


def _ticks(axis: _Axis) -> list[tuple[float, str]]:
    """Returns round values along an axis, with their labels."""
    if axis.names:
        return []
    if axis.log:
        first, last = math.ceil(axis.low), math.floor(axis.high)
        step = max(1, math.ceil((last - first) / 8))
        return [
            (10.0**power, f"{10.0**power:g}" if -4 < power < 5 else f"1e{power}")
            for power in range(first, last + 1, step)
        ]
    wanted = max(2, int(abs(axis.length) / 90))
    raw = (axis.high - axis.low) / wanted or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step_size = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    count = math.floor((axis.high - axis.low) / step_size + 1e-9)
    return [(axis.low + index * step_size, _tick_words(axis.low + index * step_size)) for index in range(count + 1)]


def _tick_words(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"
