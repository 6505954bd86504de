"""Renders the terminal's views as text, coloured text, or HTML, so that all front ends share their wording."""

from __future__ import annotations

import io
from html import escape

from rich.console import Console, RenderableType
from rich.segment import Segment

from kernelmate.report.console import show

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
    """Renders views as one preformatted HTML block with inline styles; text has the page's colour."""
    console = _console(io.StringIO(), color=True, width=width)
    pieces: list[str] = []
    for view in views:
        lines = console.render_lines(view, pad=False)
        for line in lines:
            pieces += [_span(segment) for segment in line if not segment.control]
            pieces.append("\n")
    text = "".join(pieces).rstrip("\n")
    return f'<pre style="margin:0;overflow-x:auto;line-height:1.35;font-size:12px">{text}</pre>'


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
