"""Terminal views of `compare` and `optimize`: versions side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import Case, Counters, FindingCode, Judged, Kernel, Optimization, Roofline, SearchState, Verdict
from kernelmate.report.chart import candidate_names
from kernelmate.report.console import diagnostics_view, findings_view, heading, indented, lines, pairs, table, toned
from kernelmate.report.diff import Diff, other_diffs, whole_text
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.roofline import share_words, under_one_roof
from kernelmate.report.tables import first_wrong_lines, provenance
from kernelmate.report.words import (
    BYTE_COUNTERS,
    COUNTER_WORDS,
    LIMITER_WORDS,
    METRIC_WORDS,
    alternative_rows,
    byte_words,
    case_time_words,
    case_words,
    correctness_words,
    distinguishing_reasons,
    error_words,
    further_reasons,
    global_bytes,
    kernel_words,
    number,
    objective_words,
    percent,
    printable,
    ratio_words,
    shared_bytes,
    size_words,
    speedup_words,
    standing,
    times_words,
    trade_off_lines,
)

Row = tuple[str, str, str, str]
MOST_REASONS = 2
SIZES_RIGHT = "sizes right"
ROOF_SHARE = "share of roof"


def comparison_view(baseline: Sequence[Verdict], candidate: Sequence[Verdict], sources: SourceLines) -> Group:
    """Shows baseline and candidate side by side, one pair per instance.

    Args:
        baseline: its verdicts.
        candidate: its verdicts, in the same order.
        sources: source lines for excerpts of the candidate's findings.
    """
    parts: list[RenderableType] = []
    for before, after in zip(baseline, candidate, strict=True):
        if parts:
            parts.append("")
        parts += _pair(before, after, sources)
    return Group(*parts)


def _pair(before: Verdict, after: Verdict, sources: SourceLines) -> list[RenderableType]:
    head = heading(f"candidate for {kernel_words(after)}", standing(after))
    if after.compiled:
        word, tone = correctness_words(after)
        head.append(", ")
        head.append_text(toned(word, tone))
    parts: list[RenderableType] = [head, indented(Text(provenance(after), style="dim"))]
    if after.diagnostics:
        parts += ["", diagnostics_view(after.diagnostics, sources)]
    findings = [
        finding for finding in after.findings if finding.code != FindingCode.COMPILE_ERROR or not after.diagnostics
    ]
    if findings:
        parts += ["", findings_view(findings, sources)]
    if after.cases:
        parts += ["", indented(_case_pairs(before, after)), *first_wrong_lines(after.cases)]
    if after.compiled:
        parts += ["", indented(side_by_side(before, after))]
    if after.speedup is not None:
        style = "italic" if after.speedup.kind == "predicted" else ""
        parts.append(indented(Text(f"against the baseline: {speedup_words(after.speedup)}", style=style)))
    parts += _alternatives(after)
    reasons = further_reasons(after)
    if reasons:
        parts += ["", indented(lines(reasons))]
    return parts


def side_by_side(before: Verdict, after: Verdict, *, every_counter: bool = True) -> Table:
    """Shows figures of two versions, without rows unknown for both and, if not `every_counter`, unchanged counters."""
    made = table("", "baseline", "candidate", "change", right=(1, 2, 3))
    rows = _figure_rows(before, after)
    counted = counter_rows(before.counters, after.counters)
    rows += counted if every_counter else [row for row in counted if row[3] != "same"]
    if counted and not every_counter and all(row[3] == "same" for row in counted):
        rows.append(("all counters", "", "", "same"))
    for name, old, new, change in rows:
        predicted = "predicted" in name
        made.add_row(*(Text(cell, style="italic" if predicted else "") for cell in (name, old, new, change)))
    return made


def changed_rows(before: Verdict, after: Verdict) -> list[Row]:
    """Returns the figures that differ between two versions, counters last: name, before, after, change."""
    wrong = any(case.correct is False for case in (*before.cases, *after.cases))
    repeated = (*(() if wrong else (SIZES_RIGHT,)), ROOF_SHARE)  # said by the verdict, and by the time
    return [
        row
        for row in all_rows(before, after)
        if row[1] != row[2] and "unknown" not in row and not row[0].startswith(repeated)
    ]


def _alternatives(verdict: Verdict) -> list[RenderableType]:
    """Returns a line for each library that computes the same."""
    return [indented(toned(f"{name}: {said}")) for name, said in alternative_rows(verdict)]


def all_rows(before: Verdict, after: Verdict) -> list[Row]:
    """Returns every figure that is known of two versions: name, before, after, change."""
    return _figure_rows(before, after) + counter_rows(before.counters, after.counters)


def _figure_rows(before: Verdict, after: Verdict) -> list[Row]:
    rows: list[Row] = [(SIZES_RIGHT, _sizes_right(before), _sizes_right(after), "")]
    rows += _time_rows(before, after)
    old, new = before.resources, after.resources
    if old is not None and new is not None:
        rows += [
            _row("registers per thread", old.registers, new.registers, number),
            _row("shared memory per block", shared_bytes(old), shared_bytes(new), byte_words),
            _row("local memory per thread", old.local_bytes, new.local_bytes, byte_words),
        ]
        if old.spill_bytes is not None or new.spill_bytes is not None:
            rows.append(_row("spills per thread", old.spill_bytes, new.spill_bytes, byte_words))
    if before.occupancy is not None and after.occupancy is not None:
        limits = [LIMITER_WORDS.get(item.limiter, item.limiter) for item in (before.occupancy, after.occupancy)]
        rows.append(_occupancy_row(before.occupancy.theoretical, after.occupancy.theoretical))
        rows.append(("  limited by", limits[0], limits[1], ""))
    rows += _roof_rows(before.roofline, after.roofline)
    return rows


def _roof_rows(old: Roofline | None, new: Roofline | None) -> list[Row]:
    """Returns rows of the fractions of the roof, cold and warm, with their change in percentage points.

    Both are fractions of the roof of the version with less work, so that a faster version has the larger one.
    """
    if old is None or new is None:
        return []
    old, new = under_one_roof((old, new))
    kind = ", predicted" if "predicted" in (old.kind, new.kind) else ""
    rows: list[Row] = []
    for name, before, after in (
        (f"{ROOF_SHARE}, cold{kind}", old.cold, new.cold),
        (f"{ROOF_SHARE}, warm{kind}", old.warm, new.warm),
    ):
        if before is None or after is None:
            continue
        points = (after - before) * 100
        change = "same" if abs(points) < 0.05 else f"{points:+.3g} points"
        rows.append((name, share_words(before, old), share_words(after, new), change))
    return rows


def _occupancy_row(old: float, new: float) -> Row:
    """Returns the occupancy row, with its change in percentage points."""
    points = (new - old) * 100
    change = "same" if abs(points) < 0.05 else f"{points:+.3g} points"
    return "theoretical occupancy", percent(old), percent(new), change


def _sizes_right(verdict: Verdict) -> str:
    judged = [case for case in verdict.cases if case.correct is not None]
    return f"{sum(case.correct is True for case in judged)} of {len(judged)}" if judged else "-"


def _time_rows(before: Verdict, after: Verdict) -> list[Row]:
    if before.timing is None and after.timing is None:
        return []
    kinds = {timing.kind for timing in (before.timing, after.timing) if timing is not None}
    name = "time" if kinds == {"measured"} else "time, predicted"
    cells = ["-" if it.timing is None else case_time_words(it.timing.median_us, it.timing) for it in (before, after)]
    ratio = after.speedup
    if ratio is not None and ratio.weighted:
        ratio = next((case.speedup for case in after.cases if case.origin == "contract"), None)
    rows: list[Row] = [(name, cells[0], cells[1], "" if ratio is None else ratio_words(ratio))]
    old, new = before.predicted, after.predicted
    if old is not None or new is not None:
        cells = ["-" if it is None else case_time_words(it.median_us, it) for it in (old, new)]
        told = f"~{times_words(old.median_us / new.median_us)}x" if old is not None and new is not None else ""
        rows.append(("time, predicted", cells[0], cells[1], told))
    return rows


def _row(name: str, old: float | None, new: float | None, words: Callable[[float], str]) -> Row:
    def shown(value: float | None) -> str:
        return "unknown" if value is None else words(value)

    return name, shown(old), shown(new), change_words(old, new)


def change_words(old: float | None, new: float | None) -> str:
    """Formats the change from the first figure to the second: `-50%`, `32 times`, `same`, `from 0`."""
    if old is None or new is None:
        return ""
    if old == new:
        return "same"
    if old == 0:
        return "from 0"
    if old > 0 and new >= 10 * old:
        return f"{number(new / old)} times"
    return f"{(new - old) / abs(old) * 100:+.3g}%"


def counter_rows(before: Counters | None, after: Counters | None) -> list[Row]:
    """Returns counters of two versions at the headline size."""
    if before is None or after is None:
        return []
    rows = [_row("global memory moved", global_bytes(before), global_bytes(after), byte_words)]
    for name, words in COUNTER_WORDS.items():
        old, new = getattr(before, name), getattr(after, name)
        if old is not None or new is not None:
            rows.append(_row(words, old, new, byte_words if name in BYTE_COUNTERS else number))
    return rows


def _case_pairs(before: Verdict, after: Verdict) -> Table:
    """Shows correctness per size of both versions, with both times, their ratio and weight."""
    times = {_key(case): case for case in before.cases}
    timed = any(case.median_us is not None for case in after.cases)
    predicted = after.timing is None or after.timing.kind == "predicted"
    heads = ["size", "from", "candidate", "max error"]
    heads += ["predicted time" if predicted else "time"] if timed else []
    made = table(*heads, right=(3, 4) if timed else (3,))
    for case in after.cases:
        word, tone = case_words(case)
        cells = [toned(size_words(case.size)), toned(case.origin), toned(word, tone), toned(error_words(case))]
        if timed:
            old = times.get(_key(case))
            text = case_time_words(case.median_us, after.timing)
            if old is not None and old.median_us is not None and case.median_us is not None:
                text = f"{case_time_words(old.median_us, before.timing)} -> {text}"
            if case.speedup is not None:
                text += f", {ratio_words(case.speedup)}"
            if case.weight is not None:
                text += f", weight {number(case.weight)}"
            cells.append(Text(text, style="italic" if predicted else ""))
        made.add_row(*cells)
    return made


def _key(case: Case) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(case.size.items()))


def candidate_table(judged: Sequence[Judged], best: int | None = None, *, reasons: bool = True) -> Group:
    """Lists candidates in order: author, the objective's figure before and after, result; reasons below."""
    made = table("#", "author", "objective", "verdict", right=(0,))
    whys: list[RenderableType] = []
    for index, (name, item) in enumerate(zip(candidate_names(judged, whole=True), judged, strict=True)):
        word, tone = standing(item.verdict)
        result = item.verdict.objective
        asked = Text("-") if result is None else Text(objective_words(result))
        if result is not None and result.basis == "predicted":
            asked.stylize("italic")
        verdict = toned(f"{word} (best)" if index == best else word, tone)
        made.add_row(str(index + 1), toned(name), asked, verdict)
        if reasons:
            bullet = f"{index + 1}: "
            whys.append(lines([item.candidate.why], bullet))
            whys.append(lines(distinguishing_reasons(item.verdict)[:MOST_REASONS], " " * len(bullet) + "- "))
    return Group(made, "", *whys) if whys else Group(made)


def optimization_view(optimization: Optimization, baseline: Kernel, sources: SourceLines) -> list[RenderableType]:
    """Shows the objective as understood, the candidates, and the best one with its diff and figures.

    Args:
        optimization: the search's result.
        baseline: the original kernel.
        sources: source lines for excerpts of the baseline's findings.
    """
    parts: list[RenderableType] = [_asked(optimization)]
    if not optimization.baseline.compiled:
        parts += ["", diagnostics_view(optimization.baseline.diagnostics, sources)]
    elif _worth_telling(optimization):
        parts += [
            "",
            heading("findings in the kernel as it is"),
            findings_view(optimization.baseline.findings, sources),
        ]
    if optimization.candidates:
        parts += ["", candidate_table(optimization.candidates, optimization.best)]
    said = none_taken(optimization)
    if said is not None:
        parts += ["", toned(said, "bad")]
    elif not nothing_wrong(optimization):
        first = why_first(optimization)
        parts += ["", Text(first)] if first is not None else []
        parts += ["", *best_view(optimization, baseline)]
    if optimization.notes:
        parts += ["", lines(optimization.notes, "note: ")]
    return parts


def why_first(optimization: Optimization) -> str | None:
    """Returns the reason that the best candidate is first if others have shorter times; None if none has."""
    if optimization.best is None or optimization.objective.metric != "time":
        return None
    best = optimization.candidates[optimization.best].verdict.speedup
    others = (one.verdict for one in optimization.candidates if one.verdict.accepted is not False)
    if best is None or not any(one.speedup is not None and one.speedup.median > best.median for one in others):
        return None
    return "Others have shorter times, by less than the error of these; the simplest is first."


def _worth_telling(optimization: Optimization) -> bool:
    """Returns True if the baseline's findings are worth showing: errors prevented the search, or nothing was repaired."""
    errors = any(finding.severity == "error" for finding in optimization.baseline.findings)
    return errors or (nothing_wrong(optimization) and bool(optimization.baseline.findings))


def none_taken(optimization: Optimization) -> str | None:
    """Returns a sentence on a search that led to nothing; None if it has a best candidate, or nothing was wrong."""
    if optimization.best is not None or nothing_wrong(optimization):
        return None  # in the second case the notes state it
    tried = len(optimization.candidates)
    if not tried:
        return "No candidate applies to this kernel."
    undecided = sum(judged.verdict.undecided for judged in optimization.candidates)
    more = f", {undecided} undecided: a GPU decides, by `kernelmate confirm`" if undecided else ""
    return f"No candidate is worth taking ({tried} tried{more})."


def nothing_wrong(optimization: Optimization) -> bool:
    """Returns True if a correct kernel was requested, and the present one has no error."""
    baseline = optimization.baseline
    broken = not baseline.compiled or any(finding.severity == "error" for finding in baseline.findings)
    return optimization.objective.metric == "correct" and baseline.correct is not False and not broken


def _asked(optimization: Optimization) -> Table:
    objective, baseline = optimization.objective, optimization.baseline
    aim = None if objective.metric == "correct" else f"{objective.direction} {METRIC_WORDS[objective.metric]}"
    return pairs(
        [
            ("asked", f'"{objective.prompt}"'),
            ("read as", objective.reading),
            *([("aim", aim)] if aim is not None else []),
            ("kernel", f"{kernel_words(baseline)}, {correctness_words(baseline)[0]}"),
            ("judged", provenance(baseline)),
        ]
    )


def best_view(optimization: Optimization, baseline: Kernel) -> list[RenderableType]:
    """Shows the best candidate: author, reason, changes, and figures beside the baseline's."""
    assert optimization.best is not None
    best = optimization.candidates[optimization.best]
    head = heading(best.candidate.author, standing(best.verdict))
    parts: list[RenderableType] = [head, indented(toned(best.candidate.why)), ""]
    parts.append(Diff(whole_text(baseline), whole_text(best.candidate.kernel), baseline.unit.path))
    parts += other_diffs(best.candidate)
    parts += ["", indented(side_by_side(optimization.baseline, best.verdict, every_counter=False))]
    if best.verdict.speedup is not None:
        style = "italic" if best.verdict.speedup.kind == "predicted" else ""
        parts.append(indented(Text(f"against the baseline: {speedup_words(best.verdict.speedup)}", style=style)))
    parts += _alternatives(best.verdict)
    reasons = best.verdict.reasons + trade_off_lines(best.verdict)
    if reasons:
        parts += ["", indented(lines(reasons))]
    return parts


def best_line(optimization: Optimization) -> Text:
    """Formats the result of a prompt in one line, for `--quiet`."""
    name = kernel_words(optimization.baseline)
    if nothing_wrong(optimization):
        return heading(name, correctness_words(optimization.baseline))
    if optimization.best is None:
        return heading(name, (f"no candidate worth taking of {len(optimization.candidates)}", "bad"))
    best = optimization.candidates[optimization.best]
    line = heading(name, standing(best.verdict))
    line.append(f", {printable(best.candidate.author)}")
    if best.verdict.objective is not None:
        result = best.verdict.objective
        line.append(f", {METRIC_WORDS[result.name]} {objective_words(result)}")
    return line


def trying_line(state: SearchState, elapsed_s: float | None = None, *, with_time: bool = True) -> str:
    """Formats progress: `judging recipe:vectorize | 7 tried | 12 s of 30 s | best 2.31x recipe:restrict`.

    A quick evaluation reads `trying` instead of `judging`.

    Args:
        state: the search's state.
        elapsed_s: seconds so far; None for the state's.
        with_time: False if the time is shown elsewhere.
    """
    elapsed_s = state.elapsed_s if elapsed_s is None else elapsed_s
    limit = "" if state.budget_s is None else f" of {state.budget_s:g} s"
    parts = [f"{'trying' if state.quick else 'judging'} {state.author}", f"{state.tried} tried"]
    if with_time:
        parts.append(f"{elapsed_s:.0f} s{limit}")
    if state.best is not None:
        parts.append(f"best {gain_words(state.best.verdict)} {state.best.candidate.author}")
    return printable(" | ".join(parts), keep="")


def first_line(found: Judged, elapsed_s: float) -> str:
    """Formats `first accepted: recipe:vectorize 1.90x after 4.2 s`; `first promising` if a GPU must confirm it."""
    what = "accepted" if found.verdict.accepted else "promising"
    line = f"first {what}: {found.candidate.author} {gain_words(found.verdict)} after {elapsed_s:.1f} s"
    return printable(line, keep="")


def gain_words(verdict: Verdict) -> str:
    """Formats `2.31x`, or `~2.31x` if predicted; for other objectives `16,384 B -> 8,192 B`."""
    result, ratio = verdict.objective, verdict.speedup
    if ratio is not None and (result is None or result.name == "time"):
        return ratio_words(ratio)
    return "" if result is None else objective_words(result)
