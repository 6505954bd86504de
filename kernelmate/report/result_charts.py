"""The three charts of a result, side by side: correctness, time and occupancy, as scenes of one width.

Each version has two lines: its name with the figure in words, and its marks below. Errors are in tolerances on a
logarithmic axis, times have their intervals and roofs, occupancy its limiter. Predictions are hollow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelmate.records import Case, Timing, Verdict
from kernelmate.report.chart import GREY, VERMILION, ChartVersion, version_color
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

WIDTH = 310.0
"""Pixels of each chart, drawn up to a sixth larger where a page has room."""

LEFT, RIGHT = 8.0, 302.0
TOP, ROW, BAR, FOOT = 4.0, 36.0, 11.0, 38.0
GAP = 10.0
LEAST_DECADE, MOST_DECADE = -4, 3
"""Decades of error, in tolerances, beyond which marks stand at the edge of the axis."""

CORRECTNESS, TIME, OCCUPANCY = "Correctness", "Time", "Occupancy"


def result_scenes(versions: Sequence[ChartVersion]) -> list[Scene]:
    """Returns the charts of which any version has figures, in the order of reading."""
    drawn = (correctness_scene(versions), time_scene(versions), occupancy_scene(versions))
    return [scene for scene in drawn if scene is not None]


def correctness_scene(versions: Sequence[ChartVersion]) -> Scene | None:
    """Returns each case's largest error in tolerances; 1 is the limit. None if nothing was compared."""
    compared = [_compared(version.verdict) for version in versions]
    errors = [_error(case) for cases in compared for case in cases]
    if not errors:
        return None
    low, high = _decades(errors)
    at = _log_axis(low, high)
    shapes = _ticks([(at(10.0**power), _decade(power)) for power in range(low, high + 1)], len(versions))
    for row, (version, cases) in enumerate(zip(versions, compared, strict=True)):
        shapes += _head(row, version, _right_words(version.verdict, cases))
        shapes.append(LineShape(_across(row, at(1.0)), VERMILION, 1.5, (4.0, 3.0)))
        shapes += [_case_mark(row, case, at, version_color(version)) for case in cases]
    return _scene(CORRECTNESS, shapes, "largest error of each case: 1 is its tolerance", len(versions))


def time_scene(versions: Sequence[ChartVersion]) -> Scene | None:
    """Returns times at the headline size with intervals, and each version's roof. None if nothing was timed."""
    timings = [version.verdict.timing for version in versions]
    ends = [_end(timing) for timing in timings if timing is not None]
    if not ends:
        return None
    at = _linear_axis(max(ends) * 1.04 or 1.0)
    shapes: list[Shape] = _ticks(
        [(at(value), time_words(value) if value else "0") for value in _round(max(ends))], len(versions)
    )
    roofs = False
    for row, (version, timing) in enumerate(zip(versions, timings, strict=True)):
        shapes += _head(row, version, "not timed" if timing is None else _time_words(timing))
        if timing is None:
            continue
        color, middle = version_color(version), _middle(row)
        hollow = timing.kind == "predicted"
        shapes.append(Rect(LEFT, middle - BAR / 2, at(timing.median_us) - LEFT, BAR, color, hollow))
        shapes += _interval(at(max(timing.ci95_us[0], 0.0)), at(_end(timing)), middle)
        roof = _roof_us(version.verdict)
        if roof is not None:
            roofs = True
            shapes.append(LineShape(_across(row, at(roof)), INK, 2.5))
    kind = "predicted" if all(one.kind == "predicted" for one in timings if one is not None) else "with 95 % interval"
    return _scene(TIME, shapes, f"per launch, {kind}" + ("; thick mark: its roof" if roofs else ""), len(versions))


def occupancy_scene(versions: Sequence[ChartVersion]) -> Scene | None:
    """Returns theoretical occupancy with its limiter. None if no version has one."""
    found = [version.verdict.occupancy for version in versions]
    if all(one is None for one in found):
        return None
    at = _linear_axis(1.0)
    shapes: list[Shape] = _ticks([(at(share), percent(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)], len(versions))
    for row, (version, occupancy) in enumerate(zip(versions, found, strict=True)):
        if occupancy is None:
            shapes += _head(row, version, "unknown")
            continue
        limiter = LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)
        shapes += _head(row, version, f"{percent(occupancy.theoretical)}, {limiter}")
        end = at(occupancy.theoretical)
        shapes.append(Rect(LEFT, _middle(row) - BAR / 2, end - LEFT, BAR, version_color(version)))
    return _scene(OCCUPANCY, shapes, "of the SM's warps, and what limits it", len(versions))


# -------------------------------------------------------------------------------------------------- figures


def _compared(verdict: Verdict) -> list[Case]:
    return [case for case in verdict.cases if case.correct is not None]


def _error(case: Case) -> float:
    """Returns a case's error in tolerances; infinite for a wrong case without a finite one."""
    error = case.max_error
    if error is None or not math.isfinite(error):
        return math.inf if case.correct is False else 0.0
    return max(error, 0.0)


def _right_words(verdict: Verdict, cases: Sequence[Case]) -> str:
    if not verdict.compiled:
        return "does not compile"
    if not cases:
        return "not compared"
    right = sum(case.correct is True for case in cases)
    worst = max(map(_error, cases))
    said = f"worst {number(float(f'{worst:.2g}'))}" if math.isfinite(worst) else "worst not finite"
    return f"{right} of {len(cases)} right, {said}"


def _case_mark(row: int, case: Case, at: Callable[[float], float], color: str) -> Shape:
    place, middle = at(_error(case)), _middle(row)
    if case.correct is False:
        return Mark(place, middle, "diamond", VERMILION if case.baseline_correct is not False else GREY, 11)
    return Rect(place - 1.5, middle - BAR / 2, 3, BAR, color)


def _time_words(timing: Timing) -> str:
    low, high = (time_words(bound).split()[0] if math.isfinite(bound) else "?" for bound in timing.ci95_us)
    same = len({time_words(bound).split()[-1] for bound in (timing.median_us, *timing.ci95_us)}) == 1
    interval = f" [{low}, {high}]" if same else ""
    return f"{'~' if timing.kind == 'predicted' else ''}{time_words(timing.median_us)}{interval}"


def _end(timing: Timing) -> float:
    high = timing.ci95_us[1]
    return high if math.isfinite(high) else timing.median_us


def _roof_us(verdict: Verdict) -> float | None:
    """Returns the shortest time that the GPU's roofs allow for the version's work; None if unknown."""
    placed = verdict.roofline
    if placed is None or placed.warm is None or placed.warm_us is None or not placed.warm:
        return None
    return placed.warm * placed.warm_us


# --------------------------------------------------------------------------------------------------- layout


def _middle(row: int) -> float:
    """Returns the height of a version's marks."""
    return TOP + ROW * row + 25.0


def _across(row: int, place: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the ends of an upright line through a version's marks, below its words."""
    return (place, _middle(row) - 9.0), (place, _middle(row) + 9.0)


def _bottom(rows: int) -> float:
    return TOP + ROW * rows


def _head(row: int, version: ChartVersion, words: str) -> list[Shape]:
    """Returns a version's line: its name, shortened in the middle to the room that the figure leaves, and the figure."""
    y = TOP + ROW * row + 9.0
    room = RIGHT - LEFT - text_width(words, 11.5) - GAP
    name = shortened(one_line(version.label), room, 12.6)  # bold letters are wider
    return [TextShape(LEFT, y, name, "start", 11.5, bold=True), TextShape(RIGHT, y, words, "end", 11.5)]


def _interval(low: float, high: float, y: float) -> list[Shape]:
    ends: list[Shape] = [LineShape(((end, y - 4), (end, y + 4)), VERMILION, 1.5) for end in (low, high)]
    return [LineShape(((low, y), (high, y)), VERMILION, 1.5), *ends]


def _ticks(places: Sequence[tuple[float, str]], rows: int) -> list[Shape]:
    """Returns faint lines with their words; words that would overlap are left out."""
    shapes: list[Shape] = []
    free = -math.inf
    for place, words in places:
        shapes += [LineShape(_across(row, place)) for row in range(rows)]
        half = text_width(words, 10.5) / 2
        middle = min(max(place, half), WIDTH - half)
        if middle - half > free:
            shapes.append(TextShape(middle, _bottom(rows) + 9, words, "middle", 10.5))
            free = middle + half + 4
    return shapes


def _scene(title: str, shapes: Sequence[Shape], foot: str, rows: int) -> Scene:
    words = TextShape(WIDTH / 2, _bottom(rows) + 26, shortened(foot, WIDTH - 4, 10.5), "middle", 10.5)
    return Scene(title, WIDTH, _bottom(rows) + FOOT, (*shapes, words))


def _linear_axis(most: float) -> Callable[[float], float]:
    return lambda value: LEFT + (RIGHT - LEFT) * min(value / most, 1.0)


def _log_axis(low: int, high: int) -> Callable[[float], float]:
    def at(value: float) -> float:
        power = math.log10(value) if value > 0 else -math.inf
        return LEFT + (RIGHT - LEFT) * (min(max(power, low), high) - low) / (high - low)

    return at


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
