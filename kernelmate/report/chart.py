"""Shared parts of all charts: figures in Plotly's terms as plain values, versions, colours, solid and hollow marks.

A figure is made without Plotly's Python package, whose own objects take longer to be made than everything else that is
shown of a verdict; whoever draws it gives the values to Plotly's library in a page, or reads them.

Colours are those of Okabe and Ito, told apart with every common colour vision; text and patterns say the same again.
What is predicted is drawn hollow and hatched and is labelled so; what is measured is drawn solid.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernelmate.records import Verdict
from kernelmate.report.words import one_line

Trace: TypeAlias = dict[str, Any]
"""One trace, by the names of Plotly's schema."""

BLUE, SKY, VERMILION, GREY = "#0072B2", "#56B4E9", "#D55E00", "#6E6E6E"
CLEAR = "rgba(0,0,0,0)"
ROW_PX = 34
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
        """In pixels."""
        return int(self.layout["height"])

    @property
    def plain(self) -> dict[str, Any]:
        """All of it as JSON knows it: a number that is not finite is null."""
        return {"data": _finite(self.data), "layout": _finite(self.layout)}

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(self.plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def finished(data: Sequence[Trace], height: int, **layout: Any) -> Figure:
    """A chart with what all of them share; the height is in pixels."""
    shared = {
        "template": template(dark=False),
        "height": height,
        "margin": {"l": 10, "r": 50, "t": 30, "b": 40},
        "modebar": {"orientation": "v"},
    }
    return Figure(tuple(data), {**shared, **layout})


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


def safe(text: str) -> str:
    """Text that Plotly shows as it is: it reads tags otherwise."""
    return html.escape(one_line(text))


def labels_of(versions: Sequence[ChartVersion]) -> list[str]:
    """The versions' names, as Plotly may show them."""
    return [safe(version.label) for version in versions]


def version_color(version: ChartVersion) -> str:
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
