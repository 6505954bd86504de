"""Shared parts of all charts: Plotly figures as plain values, versions, colours, solid and hollow marks.

Figures are built without Plotly's Python package, whose objects take longer to create than the rest of a report. Pages
pass the values to Plotly's JavaScript library.

Colours are those of Okabe and Ito, distinguishable with every common colour vision; text and patterns repeat the
information. Predictions are hollow, hatched and labelled; measurements are solid.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelmate.records import Judged, Timing, Verdict
from kernelmate.report.drawing import shortened
from kernelmate.report.words import one_line

Trace: TypeAlias = dict[str, Any]
"""One trace, by the names of Plotly's schema."""

BLUE, SKY, VERMILION, GREY = "#0072B2", "#56B4E9", "#D55E00", "#6E6E6E"
CLEAR = "rgba(0,0,0,0)"
ROW_PX = 34
LETTER_PX = 13
MOST_LABEL_PX = 170.0
"""Largest width in pixels of a version's name beside a chart."""
BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class ChartVersion:
    """One version in a chart."""

    label: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Figure:
    """One chart: its traces and its layout, by the names of Plotly's schema."""

    data: tuple[Trace, ...]
    layout: Mapping[str, Any]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.layout["height"])

    @property
    def plain(self) -> dict[str, Any]:
        """Returns the chart as JSON values; a number that is not finite becomes null."""
        return {"data": _finite(self.data), "layout": _finite(self.layout)}

    def to_json(self) -> str:
        """Returns it as JSON text."""
        return json.dumps(self.plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_layout(data: Sequence[Trace], height: int, **layout: Any) -> Figure:
    """Adds the layout that all charts share; the height is in pixels."""
    shared = {
        "template": template(dark=False),
        "height": height,
        "margin": {"l": 10, "r": 50, "t": 30, "b": 40},
        "modebar": {"orientation": "v"},
    }
    return Figure(tuple(data), {**shared, **layout})


def template(*, dark: bool) -> dict[str, Any]:
    """Returns the layout template of a light or a dark page; the background is transparent."""
    ink, line = ("#e6e6e6", "#4a4a4a") if dark else ("#1f1f1f", "#d0d0d0")
    axis = {"gridcolor": line, "zerolinecolor": line, "linecolor": line, "automargin": True}
    layout = {
        "font": {"color": ink, "family": "system-ui, sans-serif", "size": LETTER_PX},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "xaxis": axis,
        "yaxis": axis,
        "hoverlabel": {"font": {"family": "ui-monospace, monospace"}},
    }
    return {"layout": layout}


def candidate_labels(judged: Sequence[Judged]) -> list[str]:
    """Returns the names of a search's candidates in charts and lists, with their numbers: `2 rows-warp`."""
    return [f"{number} {name}" for number, name in enumerate(candidate_names(judged), 1)]


def candidate_names(judged: Sequence[Judged], *, whole: bool = False) -> list[str]:
    """Returns the authors of a search's candidates, with the block where one author has several: `unroll, 64 threads`.

    Args:
        judged: all candidates of the search.
        whole: with the kind of a built-in author, as in `recipe:unroll`.
    """
    names = [one.candidate.author if whole else author_name(one.candidate.author) for one in judged]
    blocks = [" x ".join(one.candidate.contract.block) for one in judged]
    of_name: dict[str, set[str]] = {}
    for name, block in zip(names, blocks, strict=True):
        of_name.setdefault(name, set()).add(block)
    return [
        f"{name}, {block} threads" if block and len(of_name[name]) > 1 else name
        for name, block in zip(names, blocks, strict=True)
    ]


def author_name(author: str) -> str:
    """Returns an author's name without the kind of a built-in one, and without the model that chose it."""
    author = author.partition(", chosen by ")[0]
    return author.removeprefix("recipe:").removeprefix("synthesis:").removeprefix("triton:")


def safe(text: str) -> str:
    """Escapes text for Plotly, which interprets tags."""
    return html.escape(one_line(text))


def labels_of(versions: Sequence[ChartVersion]) -> list[str]:
    """Returns the versions' names for Plotly: escaped, and shortened to a width of `MOST_LABEL_PX` pixels."""
    names = [one_line(version.label) for version in versions]
    return [safe(shortened(name, MOST_LABEL_PX, LETTER_PX, names)) for name in names]


def version_color(version: ChartVersion) -> str:
    """Returns grey for the baseline, blue for candidates."""
    return GREY if version.label == BASELINE else BLUE


def marker(colors: list[str] | str, *, hollow: bool) -> dict[str, Any]:
    """Returns the style of bars: solid for measurements, hollow and hatched for predictions."""
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


def interval_end(timing: Timing) -> float:
    """Returns the upper end of a time's interval; the time itself without one."""
    high = timing.ci95_us[1]
    return high if math.isfinite(high) else timing.median_us


def templates() -> dict[str, Any]:
    """Returns Plotly's layouts for light and dark pages."""
    return {"light": template(dark=False), "dark": template(dark=True)}
