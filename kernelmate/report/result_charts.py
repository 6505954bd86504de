"""The three charts of a result, side by side: correctness, time and occupancy, as scenes of one width.

Each version has a row: its name and its figure in words, and its marks below. Errors are in tolerances on a logarithmic
axis; times have intervals and roofs; occupancy has its limiter. Predictions are hollow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelmate.records import Case, Verdict
from kernelmate.report.chart import GREY, VERMILION, ChartVersion, interval_end, version_color
from kernelmate.report.drawing import (
    INK,
    LineShape,
    Mark,
    Rect,
    Scene,
    Shape,
    TextShape,
    shortened,
    text_width,
)
from kernelmate.report.words import LIMITER_WORDS, number, one_line, percent, time_words

LEFT, TOP, BAR, GAP = 8.0, 4.0, 11.0, 10.0
BOLD = 12.6
"""Font size in pixels with which `text_width` estimates bold text of 11.5 pixels."""
FOOT, LINE = 25.0, 13.0
"""Height in pixels of the axis labels, and of each line of text below them."""


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """Sizes of a chart in pixels; a page scales it up by at most a sixth.

    Attributes:
        width: of the chart.
        row: height of one version.
        marks: distance from the top of a version's row to the middle of its marks.
        stacked: True if the figure is below the version's name, False if it is beside it.
        foot_lines: lines of words below the axis.
    """

    width: float
    row: float
    marks: float
    stacked: bool
    foot_lines: int

    @property
    def right(self) -> float:
        """Right end of the axis."""
        return self.width - LEFT

    def middle(self, row: int) -> float:
        """Returns the y coordinate of a version's marks."""
        return TOP + self.row * row + self.marks

    def across(self, row: int, place: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Returns the ends of a vertical line through a version's marks."""
        return (place, self.middle(row) - 9.0), (place, self.middle(row) + 9.0)

    def bottom(self, rows: int) -> float:
        """Returns the y coordinate of the lower end of the rows."""
        return TOP + self.row * rows

    def linear_axis(self, most: float) -> Callable[[float], float]:
        """Returns the map from values between 0 and the largest to x coordinates."""
        return lambda value: LEFT + (self.right - LEFT) * min(value / most, 1.0)

    def log_axis(self, low: int, high: int) -> Callable[[float], float]:
        """Returns the map from values to x coordinates on a logarithmic axis between two powers of ten.

        Other values are at the ends of the axis.
        """

        def at(value: float) -> float:
            power = math.log10(value) if value > 0 else -math.inf
            return LEFT + (self.right - LEFT) * (min(max(power, low), high) - low) / (high - low)

        return at


WIDE = ChartLayout(width=310.0, row=36.0, marks=25.0, stacked=False, foot_lines=1)
CROWDED = ChartLayout(width=310.0, row=45.0, marks=36.5, stacked=True, foot_lines=1)
"""Replaces `WIDE` if names are too long to stand beside the figures."""
NARROW = ChartLayout(width=190.0, row=48.0, marks=38.0, stacked=True, foot_lines=2)
"""Three charts of this width fit into 600 pixels."""

LEAST_DECADE, MOST_DECADE = -4, 3
"""Decades of error, in tolerances, beyond which marks are drawn at the edge of the axis."""

CORRECTNESS, TIME, OCCUPANCY = "Correctness", "Time", "Occupancy"


def result_scenes(versions: Sequence[ChartVersion], layout: ChartLayout = WIDE) -> list[Scene]:
    """Returns the charts for which any version has figures, in display order."""
    if not layout.stacked and not _fit_beside(versions, layout):
        layout = CROWDED
    drawn = (correctness_scene(versions, layout), time_scene(versions, layout), occupancy_scene(versions, layout))
    return [scene for scene in drawn if scene is not None]


def correctness_scene(versions: Sequence[ChartVersion], layout: ChartLayout = WIDE) -> Scene | None:
    """Returns the chart of each case's largest error in tolerances; 1 is the limit. None if nothing was compared."""
    compared = [_compared(version.verdict) for version in versions]
    errors = [_error(case) for cases in compared for case in cases]
    if not errors:
        return None
    low, high = _decades(errors)
    at = layout.log_axis(low, high)
    shapes = _ticks([(at(10.0**power), _decade(power)) for power in range(low, high + 1)], len(versions), layout)
    shapes += _heads(versions, _right_words, layout)
    for row, (version, cases) in enumerate(zip(versions, compared, strict=True)):
        shapes.append(LineShape(layout.across(row, at(1.0)), VERMILION, 1.5, (4.0, 3.0)))
        shapes += [_case_mark(layout.middle(row), case, at, version_color(version)) for case in cases]
    return _scene(CORRECTNESS, shapes, "largest error of each case: 1 is its tolerance", len(versions), layout)


def time_scene(versions: Sequence[ChartVersion], layout: ChartLayout = WIDE) -> Scene | None:
    """Returns the chart of times at the headline size with intervals and roofs; None if nothing was timed."""
    timings = [version.verdict.timing for version in versions]
    ends = [interval_end(timing) for timing in timings if timing is not None]
    if not ends:
        return None
    at = layout.linear_axis(max(ends) * 1.04 or 1.0)
    shapes: list[Shape] = _ticks(
        [(at(value), time_words(value) if value else "0") for value in _round(max(ends))], len(versions), layout
    )
    roofs = False
    shapes += _heads(versions, _time_words, layout)
    for row, (version, timing) in enumerate(zip(versions, timings, strict=True)):
        if timing is None:
            continue
        color, middle = version_color(version), layout.middle(row)
        hollow = timing.kind == "predicted"
        shapes.append(Rect(LEFT, middle - BAR / 2, at(timing.median_us) - LEFT, BAR, color, hollow))
        shapes += _interval(at(max(timing.ci95_us[0], 0.0)), at(interval_end(timing)), middle)
        roof = _roof_us(version.verdict)
        if roof is not None:
            roofs = True
            shapes.append(LineShape(layout.across(row, at(roof)), INK, 2.5))
    kind = "predicted" if all(one.kind == "predicted" for one in timings if one is not None) else "with 95 % interval"
    foot = f"per launch, {kind}" + ("; thick mark: its roof" if roofs else "")
    return _scene(TIME, shapes, foot, len(versions), layout)


def occupancy_scene(versions: Sequence[ChartVersion], layout: ChartLayout = WIDE) -> Scene | None:
    """Returns the chart of theoretical occupancy with its limiter; None if no version has one."""
    found = [version.verdict.occupancy for version in versions]
    if all(one is None for one in found):
        return None
    at = layout.linear_axis(1.0)
    shares = [(at(share), percent(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    shapes: list[Shape] = _ticks(shares, len(versions), layout)
    shapes += _heads(versions, _occupancy_words, layout)
    for row, (version, occupancy) in enumerate(zip(versions, found, strict=True)):
        if occupancy is None:
            continue
        end = at(occupancy.theoretical)
        shapes.append(Rect(LEFT, layout.middle(row) - BAR / 2, end - LEFT, BAR, version_color(version)))
    return _scene(OCCUPANCY, shapes, "of the SM's warps, and what limits it", len(versions), layout)


# -------------------------------------------------------------------------------------------------- figures


def _compared(verdict: Verdict) -> list[Case]:
    return [case for case in verdict.cases if case.correct is not None]


def _error(case: Case) -> float:
    """Returns a case's error in tolerances; infinite for a wrong case without a finite one."""
    error = case.max_error
    if error is None or not math.isfinite(error):
        return math.inf if case.correct is False else 0.0
    return max(error, 0.0)


def _right_words(verdict: Verdict) -> str:
    if not verdict.compiled:
        return "does not compile"
    cases = _compared(verdict)
    if not cases:
        return "not compared"
    right = sum(case.correct is True for case in cases)
    worst = max(map(_error, cases))
    said = f"worst {number(float(f'{worst:.2g}'))}" if math.isfinite(worst) else "worst not finite"
    return f"{right} of {len(cases)} {'as baseline' if verdict.as_baseline else 'right'}, {said}"


def _case_mark(middle: float, case: Case, at: Callable[[float], float], color: str) -> Shape:
    place = at(_error(case))
    if case.correct is False:
        return Mark(place, middle, "diamond", VERMILION if case.baseline_correct is not False else GREY, 11)
    return Rect(place - 1.5, middle - BAR / 2, 3, BAR, color)


def _occupancy_words(verdict: Verdict) -> str:
    occupancy = verdict.occupancy
    if occupancy is None:
        return "unknown"
    return f"{percent(occupancy.theoretical)}, {LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)}"


def _time_words(verdict: Verdict) -> str:
    timing = verdict.timing
    if timing is None:
        return "not timed"
    low, high = (time_words(bound).split()[0] if math.isfinite(bound) else "?" for bound in timing.ci95_us)
    same = len({time_words(bound).split()[-1] for bound in (timing.median_us, *timing.ci95_us)}) == 1
    interval = f" [{low}, {high}]" if same else ""
    return f"{'~' if timing.kind == 'predicted' else ''}{time_words(timing.median_us)}{interval}"


def _roof_us(verdict: Verdict) -> float | None:
    """Returns the shortest time that the GPU's roofs allow for the version's work; None if unknown."""
    placed = verdict.roofline
    if placed is None or placed.warm is None or placed.warm_us is None or not placed.warm:
        return None
    return placed.warm * placed.warm_us


# --------------------------------------------------------------------------------------------------- layout


def _heads(versions: Sequence[ChartVersion], words: Callable[[Verdict], str], layout: ChartLayout) -> list[Shape]:
    """Returns each version's name and figure as text; a name that is too long is shortened."""
    shapes: list[Shape] = []
    names = [one_line(version.label) for version in versions]
    for row, (name, version) in enumerate(zip(names, versions, strict=True)):
        y, room, figure = TOP + layout.row * row + 9.0, layout.right - LEFT, words(version.verdict)
        if layout.stacked:
            shapes.append(TextShape(LEFT, y + LINE, shortened(figure, room, 11.5), "start", 11.5))
        else:
            shapes.append(TextShape(layout.right, y, figure, "end", 11.5))
            room -= text_width(figure, 11.5) + GAP
        shapes.append(TextShape(LEFT, y, shortened(name, room, BOLD, names), "start", 11.5, bold=True))
    return shapes


def _fit_beside(versions: Sequence[ChartVersion], layout: ChartLayout) -> bool:
    """Returns True if in every chart each name has room beside its figure."""
    return all(
        text_width(one_line(version.label), BOLD) + GAP + text_width(words(version.verdict), 11.5)
        <= layout.right - LEFT
        for version in versions
        for words in (_right_words, _time_words, _occupancy_words)
    )


def _interval(low: float, high: float, y: float) -> list[Shape]:
    ends: list[Shape] = [LineShape(((end, y - 4), (end, y + 4)), VERMILION, 1.5) for end in (low, high)]
    return [LineShape(((low, y), (high, y)), VERMILION, 1.5), *ends]


def _ticks(places: Sequence[tuple[float, str]], rows: int, layout: ChartLayout) -> list[Shape]:
    """Returns faint tick lines with their labels; labels that would overlap are left out."""
    shapes: list[Shape] = []
    free = -math.inf
    for place, words in places:
        shapes += [LineShape(layout.across(row, place)) for row in range(rows)]
        half = text_width(words, 10.5) / 2
        middle = min(max(place, half), layout.width - half)
        if middle - half > free:
            shapes.append(TextShape(middle, layout.bottom(rows) + 9, words, "middle", 10.5))
            free = middle + half + 4
    return shapes


def _scene(title: str, shapes: Sequence[Shape], foot: str, rows: int, layout: ChartLayout) -> Scene:
    below = layout.bottom(rows) + FOOT
    lines = _wrapped(foot, layout.width - 4, layout.foot_lines)
    words = [TextShape(layout.width / 2, below + 1 + LINE * n, line, "middle", 10.5) for n, line in enumerate(lines)]
    return Scene(title, layout.width, below + LINE * layout.foot_lines, (*shapes, *words))


def _wrapped(words: str, room: float, lines: int) -> list[str]:
    """Returns the text as at most `lines` lines of `room` pixels; the last is shortened if it does not fit."""
    first, rest = "", words.split()
    while lines > 1 and rest and text_width(f"{first} {rest[0]}", 10.5) <= room:
        first = f"{first} {rest.pop(0)}".lstrip()
    if not first:
        return [shortened(words, room, 10.5)]
    return [first, *(_wrapped(" ".join(rest), room, lines - 1) if rest else [])]


def _decades(errors: Sequence[float]) -> tuple[int, int]:
    """Returns the first and last decade of an axis that holds these errors and the limit."""
    known = [math.log10(error) for error in errors if 0 < error < math.inf]
    low = math.floor(min(known, default=-3.0))
    high = MOST_DECADE if math.inf in errors else math.ceil(max(known, default=1.0))
    return max(min(low, -2), LEAST_DECADE), min(max(high, 1), MOST_DECADE)


def _decade(power: int) -> str:
    return f"{10.0**power:g}"


def _round(most: float) -> list[float]:
    """Returns three to five round values from 0 up to the largest."""
    raw = most / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    return [step * index for index in range(int(most / step + 1e-9) + 1)]
