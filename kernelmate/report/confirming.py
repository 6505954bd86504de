"""Terminal view of `confirm`: earlier predictions beside measurements."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import Confirmation, ConfirmationReport, ObjectiveResult, Outcome, Speedup, Timing, Verdict
from kernelmate.report.console import heading, indented, lines, table, toned
from kernelmate.report.tables import provenance
from kernelmate.report.words import (
    Tone,
    correctness_words,
    distinguishing_reasons,
    kernel_words,
    number,
    objective_words,
    ratio_words,
    times_words,
    timing_words,
)

OUTCOME_WORDS: Mapping[Outcome, tuple[str, Tone]] = {
    "confirmed": ("confirmed", "good"),
    "refuted": ("refuted", "bad"),
    "undecided": ("undecided", "doubt"),
}


def confirmed_view(confirmed: ConfirmationReport) -> list[RenderableType]:
    """Shows the prompt, each version with its outcome, then predicted and measured times."""
    baseline = confirmed.baseline
    asked = "" if confirmed.objective is None else f': "{confirmed.objective.prompt}"'
    parts: list[RenderableType] = [
        heading(f"{kernel_words(baseline)}{asked}", correctness_words(baseline)),
        indented(Text(provenance(baseline), style="dim")),
    ]
    if confirmed.confirmations:
        parts += ["", indented(_outcomes(confirmed))]
    elif confirmed.objective is not None:
        parts += ["", indented(toned("nothing was promising; --all judges every version again", "doubt"))]
    parts += ["", indented(_times(confirmed))]
    reasons = [
        f"{index}: {reason}"
        for index, one in enumerate(confirmed.confirmations, 1)
        for reason in distinguishing_reasons(one.verdict)
    ]
    if reasons:
        parts += ["", indented(lines(reasons))]
    if confirmed.notes:
        parts += ["", indented(lines(confirmed.notes, "note: "))]
    return parts


def _outcomes(confirmed: ConfirmationReport) -> Table:
    made = table("#", "author", "promised", "found", "outcome", right=(0,))
    for index, one in enumerate(confirmed.confirmations, 1):
        promised = Text(_gain(one.promise.objective, one.promise.speedup), style="italic")
        found = _gain(one.verdict.objective, one.verdict.speedup) if one.verdict.compiled else "does not compile"
        made.add_row(
            str(index),
            toned(one.promise.author.removeprefix("recipe:")),
            promised,
            found,
            toned(*OUTCOME_WORDS[one.outcome]),
        )
    return made


def _gain(result: ObjectiveResult | None, speedup: Speedup | None) -> str:
    """Formats the gain: a ratio of times with its interval, or the objective's value before and after."""
    if speedup is not None and (result is None or result.name == "time"):
        low, high = map(times_words, speedup.ci95)
        return f"{ratio_words(speedup)} [{low}, {high}]{' by weights' if speedup.weighted else ''}"
    return "-" if result is None else objective_words(result)


def _times(confirmed: ConfirmationReport) -> Table:
    """Shows predicted and measured times, and whether the measured time lies within the prediction's error."""
    made = table("time", "predicted", "measured", "ratio", "prediction", right=(3,))
    rows = [("baseline", confirmed.timing, confirmed.baseline)]
    rows += [(f"{index}", one.promise.timing, one.verdict) for index, one in enumerate(confirmed.confirmations, 1)]
    for name, predicted, verdict in rows:
        # For a version without a predicted time (never emulated), the model's prediction on this machine is used.
        made.add_row(name, *_time_cells(predicted or verdict.predicted, verdict))
    return made


def _time_cells(predicted: Timing | None, verdict: Verdict) -> tuple[Text | str, ...]:
    measured = verdict.timing if verdict.timing is not None and verdict.timing.kind == "measured" else None
    told = "-" if predicted is None else timing_words(predicted).removesuffix(" predicted")
    cells: tuple[Text | str, ...] = (Text(told, style="italic"), timing_words(measured))
    if predicted is None or measured is None or not predicted.median_us > 0:
        return (*cells, "-", "-")
    low, high = predicted.ci95_us
    inside = low <= measured.median_us <= high
    told_so = toned("borne out", "good") if inside else toned("outside its error", "doubt")
    return (*cells, f"{number(measured.median_us / predicted.median_us)}x", told_so)


def confirmation_line(one: Confirmation) -> Text:
    """Formats one version's outcome in a line, for `--quiet`."""
    line = heading(one.promise.author, OUTCOME_WORDS[one.outcome])
    line.append(f", {_gain(one.verdict.objective, one.verdict.speedup)}")
    return line
