"""Shapes of a chart, rendered as SVG in the page's text colour, or as PNG for pages that show no SVG."""

from __future__ import annotations

import base64
import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any, Literal, TypeAlias

INK = "ink"
"""Colour of text: `currentColor` in SVG, nearly black in PNG."""

FAINT = "faint"
"""Colour of axes: that of text at an opacity of 35 %."""

CLEAR = "clear"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
MIDDLE = "#787878"
"""Text colour with a contrast of more than 4.2 to 1 on white and on the background of the dark theme (#111111)."""

GROUND, DARK, GREY = "#ffffff", "#1f1f1f", "#c9c9c9"

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Rect:
    """A filled box, or an outlined and hatched one for predictions."""

    x: float
    y: float
    width: float
    height: float
    color: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class LineShape:
    """A line through points; `dash` is empty for a solid one."""

    points: tuple[tuple[float, float], ...]
    color: str = FAINT
    width: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A point: a circle, diamond or square, filled or open."""

    x: float
    y: float
    symbol: str
    color: str
    size: float = 11.0

    @property
    def open(self) -> bool:
        """True for an outlined mark."""
        return self.symbol.endswith("-open")

    def corners(self) -> tuple[tuple[float, float], ...]:
        """Outline of the mark as a polygon."""
        half = self.size / 2
        if self.symbol.startswith("circle"):
            steps = [step * math.pi / 8 for step in range(16)]
            return tuple((self.x + half * math.cos(step), self.y + half * math.sin(step)) for step in steps)
        if self.symbol.startswith("diamond"):
            return ((self.x, self.y - half), (self.x + half, self.y), (self.x, self.y + half), (self.x - half, self.y))
        low, high = -half * 0.85, half * 0.85
        return tuple((self.x + dx, self.y + dy) for dx, dy in ((low, low), (high, low), (high, high), (low, high)))


@dataclass(frozen=True, slots=True)
class TextShape:
    """One line of text; `y` is its vertical middle."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    size: float = 12.0
    color: str = INK
    bold: bool = False


Shape: TypeAlias = Rect | LineShape | Mark | TextShape


@dataclass(frozen=True, slots=True)
class Scene:
    """A chart as shapes. Sizes are pixels.

    Attributes:
        title: its title; also its alternative text.
    """

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]


def text_width(text: str, size: float = 12.0) -> float:
    """Estimates the width of a text, assuming a wide font."""
    return sum(0.33 if char in "ilj.,:;'|! ()[]" else 0.9 if char in "mwMW%@" else 0.6 for char in text) * size


MOST_PARTS = 8
"""Number of `+`-joined rewrites in a name above which only letters are cut, not whole rewrites."""


def shortened(text: str, room: float, size: float = 12.0, others: Sequence[str] = ()) -> str:
    """Returns a text shortened in its middle to fit a width in pixels.

    Args:
        text: the text, such as `2 vectorize+unroll`.
        room: the width in pixels.
        size: of the letters, in pixels.
        others: names shown beside it; the shortened text matches none of them, if the room allows that. Leading numbers
            are ignored.
    """
    if text_width(text, size) <= room:
        return text
    number, name = _numbered(text)
    names = {_numbered(other)[1] for other in others} - {name}
    middle = number + _cut(name, room - text_width(number, size), size)
    forms = (middle, *(number + form for form in _forms(name, len(middle))))
    fitting = (form for form in forms if text_width(form, size) <= room)
    return next((form for form in fitting if not any(_reads_as(_numbered(form)[1], other) for other in names)), middle)


def _numbered(text: str) -> tuple[str, str]:
    """Splits a candidate's label into its number with the space (empty if there is none) and its name."""
    number = re.match(r"\d+ ", text)
    return ("", text) if number is None else (number[0], text[number.end() :])


def _reads_as(form: str, name: str) -> bool:
    """Returns True if a name matches a shortened form, in which `...` stands for any text."""
    first, *between, last = form.split("...")
    at = len(first)
    for piece in between:
        at = name.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    return name.startswith(first) and name.endswith(last) and at <= len(name) - len(last)


def _forms(name: str, most: int) -> Iterator[str]:
    """Yields shorter forms of a name, the longest first of each kind.

    First some of its joined rewrites, then at most `most` letters with one gap, then with two gaps.
    """
    parts = name.split("+")
    for kept in range(len(parts) - 1 if len(parts) <= MOST_PARTS else 0, 0, -1):
        for places in itertools.combinations(range(len(parts)), kept):
            shown = [part if place in places else "..." for place, part in enumerate(parts)]
            yield "+".join(
                part for part, before in zip(shown, ["", *shown], strict=False) if part != "..." or before != part
            )
    for kept in range(min(len(name) - 1, most), 0, -1):
        for head in sorted(range(kept + 1), key=lambda head: abs(2 * head - kept)):
            yield f"{name[:head]}...{name[len(name) - (kept - head) :]}"
    for kept in range(min(len(name) - 2, most), 0, -1):
        yield from (f"...{name[start : start + kept]}..." for start in range(1, len(name) - kept))


def _cut(text: str, room: float, size: float) -> str:
    kept = len(text) - 1
    while kept > 2 and text_width(text, size) * (kept + 1) / len(text) > room:
        kept -= 1
    while kept > 2 and text_width(_without_middle(text, kept), size) > room:
        kept -= 1
    return _without_middle(text, kept)


def _without_middle(text: str, kept: int) -> str:
    head = kept // 2
    return f"{text[:head]}...{text[len(text) - (kept - head) :]}"


# ---------------------------------------------------------------------------------------------------------- SVG


def picture(scene: Scene) -> str:
    """Returns the scene as an `img` element with a data URL and one fixed text colour, for pages without inline SVG."""
    drawn = svg(scene).replace("currentColor", MIDDLE)
    source = base64.b64encode(drawn.encode()).decode()
    title = escape(scene.title, quote=True)
    return f'<img alt="{title}" width="{_n(scene.width)}" style="max-width:100%;height:auto" src="data:image/svg+xml;base64,{source}">'


def svg(scene: Scene, *, styled: bool = True) -> str:
    """Returns the scene as an SVG element that scales down with the page; unstyled for pages that forbid inline styles."""
    body = "".join(_svg_shape(shape) for shape in scene.shapes)
    title = escape(scene.title, quote=True)
    style = f'style="width:100%;max-width:{_n(scene.width)}px;height:auto;display:block" ' if styled else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(scene.width)} {_n(scene.height)}" role="img" '
        f'aria-label="{title}" {style}'
        f'font-family="{FONT}"><title>{title}</title>{body}</svg>'
    )


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg_color(color: str, attribute: str) -> str:
    if color in {INK, FAINT}:
        opacity = f' {attribute}-opacity=".35"' if color == FAINT else ""
        return f'{attribute}="currentColor"{opacity}'
    return f'{attribute}="{"none" if color == CLEAR else color}"'


def _svg_shape(shape: Shape) -> str:
    if isinstance(shape, Rect):
        return _svg_rect(shape)
    if isinstance(shape, LineShape):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in shape.points)
        dash = f' stroke-dasharray="{" ".join(map(_n, shape.dash))}"' if shape.dash else ""
        return f'<polyline points="{points}" fill="none" {_svg_color(shape.color, "stroke")} stroke-width="{_n(shape.width)}"{dash}/>'
    if isinstance(shape, Mark):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in shape.corners())
        paint = (
            f'fill="none" {_svg_color(shape.color, "stroke")} stroke-width="2"'
            if shape.open
            else _svg_color(shape.color, "fill")
        )
        return f'<polygon points="{points}" {paint}/>'
    weight = ' font-weight="600"' if shape.bold else ""
    return (
        f'<text x="{_n(shape.x)}" y="{_n(shape.y)}" font-size="{_n(shape.size)}" text-anchor="{shape.anchor}" '
        f'dominant-baseline="central" {_svg_color(shape.color, "fill")}{weight}>{escape(shape.text)}</text>'
    )


def _svg_rect(rect: Rect) -> str:
    place = f'x="{_n(rect.x)}" y="{_n(rect.y)}" width="{_n(max(rect.width, 0.5))}" height="{_n(rect.height)}"'
    if not rect.hollow:
        return f"<rect {place} {_svg_color(rect.color, 'fill')}/>"
    lines = "".join(f"M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}" for (x1, y1), (x2, y2) in hatches(rect))
    stroke = _svg_color(rect.color, "stroke")
    return f'<rect {place} fill="none" {stroke} stroke-width="2"/><path d="{lines}" {stroke} stroke-width="1"/>'


def hatches(rect: Rect, step: float = 9.0) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Returns the ends of slanted lines within a box.

    Each is a line of its own, since SVG patterns need names that are unique in the page.
    """
    lines = []
    start = step
    while start < rect.width + rect.height:
        x1, y1 = (start, 0.0) if start <= rect.width else (rect.width, start - rect.width)
        x2, y2 = (0.0, start) if start <= rect.height else (start - rect.height, rect.height)
        lines.append(((rect.x + x1, rect.y + y1), (rect.x + x2, rect.y + y2)))
        start += step
    return lines


# ---------------------------------------------------------------------------------------------------------- PNG


def png(scenes: Sequence[Scene], margin: float = 14.0) -> bytes | None:
    """Renders scenes below each other on white as PNG, readable in light and dark themes; None without Pillow."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return None
    width = max(scene.width for scene in scenes) + 2 * margin
    height = sum(scene.height + 24 + margin for scene in scenes) + margin
    image = Image.new("RGB", (math.ceil(width), math.ceil(height)), GROUND)
    brush = ImageDraw.Draw(image)
    top = margin
    for scene in scenes:
        _paint(brush, TextShape(0, 10, scene.title, bold=True, size=13), margin, top)
        for shape in scene.shapes:
            _paint(brush, shape, margin, top + 24)
        top += scene.height + 24 + margin
    file = io.BytesIO()
    # Charts have few colours, and a palette reduces the size to a third.
    image.quantize(64, Image.Quantize.FASTOCTREE).save(file, "PNG", compress_level=6)
    return file.getvalue()


@lru_cache
def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _painted(color: str) -> str | None:
    return {INK: DARK, FAINT: GREY, CLEAR: None}.get(color, color)


def _paint(brush: Any, shape: Shape, left: float, top: float) -> None:
    if isinstance(shape, Rect):
        box = (left + shape.x, top + shape.y, left + shape.x + max(shape.width, 1), top + shape.y + shape.height)
        brush.rectangle(
            box, fill=None if shape.hollow else _painted(shape.color), outline=_painted(shape.color), width=2
        )
        for (x1, y1), (x2, y2) in hatches(shape) if shape.hollow else []:
            brush.line((left + x1, top + y1, left + x2, top + y2), fill=_painted(shape.color), width=1)
    elif isinstance(shape, LineShape):
        points = [(left + x, top + y) for x, y in shape.points]
        brush.line(points, fill=_painted(shape.color), width=max(1, round(shape.width)))
    elif isinstance(shape, Mark):
        points = [(left + x, top + y) for x, y in shape.corners()]
        color = _painted(shape.color)
        brush.polygon(points, fill=None if shape.open else color, outline=color, width=2)
    else:
        anchor = {"start": "lm", "middle": "mm", "end": "rm"}[shape.anchor]
        place = (left + shape.x, top + shape.y)
        brush.text(place, shape.text, fill=_painted(shape.color), font=_font(shape.size), anchor=anchor)
