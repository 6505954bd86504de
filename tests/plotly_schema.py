"""Plotly's own package as a judge of charts: it knows every name and value that its library in a page understands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernelmate.report.chart import Figure

go = pytest.importorskip("plotly.graph_objects", reason="plotly is not installed: pip install 'kernelmate[report]'")


def taken(figure: Figure | None) -> Any:
    """The chart as Plotly's object; fails where there is none, and where a name or a value is not of its schema."""
    assert figure is not None
    made = go.Figure(figure.plain)
    assert json.loads(made.to_json()) == figure.plain, "nothing had to be put in another form"
    return made
