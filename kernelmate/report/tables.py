"""Terminal views of `check` and `bench`: one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import Case, Counters, Diagnostic, Finding, FindingCode, LaunchShape, Timing, Verdict
from kernelmate.report.console import diagnostics_view, findings_view, heading, indented, lines, pairs, table, toned
from kernelmate.report.counters import cache_rows, hardware_table, mix_rows
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.roofline import roofline_view
from kernelmate.report.stages import stage_table
from kernelmate.report.words import (
    BYTE_COUNTERS,
    COUNTER_WORDS,
    METRIC_WORDS,
    Tone,
    alternative_rows,
    beside_words,
    byte_words,
    case_time_words,
    case_words,
    correctness_words,
    error_words,
    further_reasons,
    global_bytes,
    kernel_words,
    launch_words,
    not_judged,
    number,
    objective_words,
    occupancy_words,
    percent,
    plural,
    shared_bytes,
    shared_words,
    size_words,
    speedup_words,
    standing,
    timing_words,
    uncompiled_words,
    wave_words,
    wrong_words,
)


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """One verdict of `check`, with data on its occupancy.

    Attributes:
        lifts: changes that would raise occupancy.
        shape: the launch; None if unknown.
        guessed: True if the launch was inferred for lack of a contract.
    """

    verdict: Verdict
    lifts: tuple[str, ...] = ()
    shape: LaunchShape | None = None
    guessed: bool = False


def provenance(verdict: Verdict) -> str:
    """Returns the backend, target, compiler and seed of the figures."""
    where = "" if verdict.backend == "cuda" else "emulated for "
    return f"{where}{verdict.target} ({verdict.arch}), {verdict.compiler}, seed {verdict.seed}"


def check_view(checked: Sequence[CheckedKernel], sources: SourceLines) -> Group:
    """Shows resources and occupancy of every kernel, then changes that would raise it, then compiler messages."""
    parts: list[RenderableType] = []
    compiled = [item for item in checked if item.verdict.compiled]
    if compiled:
        parts.append(_resource_table([item.verdict for item in compiled]))
        first = compiled[0].verdict
        parts.append(Text(f"{first.target} ({first.arch}), {first.compiler}", style="dim"))
    for item in compiled:
        parts += _occupancy_lines(item)
        stages = stage_table(item.verdict)
        parts += [Group(heading(kernel_words(item.verdict)), *stages)] if stages else []
    failed: dict[tuple[str, Tone], dict[str, None]] = {}
    for item in checked:
        if not item.verdict.compiled:
            failed.setdefault(uncompiled_words(item.verdict), {})[kernel_words(item.verdict)] = None
    parts += [heading(", ".join(names), said) for said, names in failed.items()]
    seen: dict[Diagnostic, None] = {}
    for item in checked:
        seen |= dict.fromkeys(item.verdict.diagnostics)
    if seen:
        parts.append(diagnostics_view(list(seen), sources))
    findings: dict[Finding, None] = {}
    for item in checked:
        findings |= dict.fromkeys(_beyond_diagnostics(item.verdict))
    if findings:
        parts.append(findings_view(list(findings), sources))
    return Group(*_spaced(parts))


def _spaced(parts: Sequence[RenderableType]) -> list[RenderableType]:
    spaced: list[RenderableType] = []
    for part in parts:
        if spaced and not isinstance(part, Text):
            spaced.append("")
        spaced.append(part)
    return spaced


def _beyond_diagnostics(verdict: Verdict) -> tuple[Finding, ...]:
    """Returns the findings without the one that only repeats the compiler's message."""
    if not verdict.diagnostics:
        return verdict.findings
    return tuple(finding for finding in verdict.findings if finding.code != FindingCode.COMPILE_ERROR)


def _resource_table(verdicts: Sequence[Verdict]) -> Table:
    made = table(
        "kernel", "regs", "shared", "local", "spills", "occupancy", "limited by", "waves", right=(1, 2, 3, 4, 5, 7)
    )
    for verdict in verdicts:
        resources, occupancy = verdict.resources, verdict.occupancy
        cells = [kernel_words(verdict)]
        if resources is None:
            cells += ["-"] * 4
        else:
            spills = "unknown" if resources.spill_bytes is None else byte_words(resources.spill_bytes)
            cells += [
                number(resources.registers),
                byte_words(shared_bytes(resources)),
                byte_words(resources.local_bytes),
                spills,
            ]
        if occupancy is None:
            cells += ["-"] * 3
        else:
            waves = "-" if occupancy.waves is None else number(occupancy.waves)
            cells += [percent(occupancy.theoretical), occupancy.limiter, waves]
        made.add_row(*(toned(cell) for cell in cells))
    return made


def _occupancy_lines(item: CheckedKernel) -> list[RenderableType]:
    occupancy = item.verdict.occupancy
    if occupancy is None:
        return []
    blocks = plural(occupancy.blocks_per_sm, "block")
    rows: list[RenderableType] = [
        heading(kernel_words(item.verdict)),
        indented(Text(f"{occupancy_words(occupancy)}; {blocks} per SM; {wave_words(occupancy)}")),
    ]
    if item.shape is not None:
        launch = f"launch: {launch_words(item.shape)}"
        guess = toned(f"{launch} (a guess: there is no contract)", "doubt") if item.guessed else Text(launch)
        rows.append(indented(guess))
    if item.lifts:
        rows.append(indented(lines(item.lifts, "to lift it: ")))
    return [Group(*rows)]


def verdict_view(verdict: Verdict, sources: SourceLines, *, cases: bool = True) -> Group:
    """Shows everything known about one version.

    Args:
        verdict: what to show.
        sources: source lines for excerpts.
        cases: show the table of sizes; every wrong size is named either way.
    """
    parts: list[RenderableType] = [_head(verdict)]
    if verdict.diagnostics:
        parts.append(diagnostics_view(verdict.diagnostics, sources))
    findings = _beyond_diagnostics(verdict)
    if findings:
        parts.append(findings_view(findings, sources))
    if verdict.cases:
        shown = verdict.cases if cases else tuple(case for case in verdict.cases if case.correct is False)
        if shown:
            parts.append(indented(case_table(shown, verdict)))
            parts += first_wrong_lines(shown)
    if verdict.compiled:
        parts += stage_table(verdict)
        parts.append(indented(pairs(_figures(verdict))))
        if verdict.hardware is not None:
            parts.append(indented(hardware_table(verdict.hardware, verdict.counters)))
        elif verdict.counters is not None:
            parts.append(indented(counter_table(verdict.counters)))
        if verdict.roofline is not None:
            parts.append(indented(roofline_view(verdict.roofline, verdict.hardware)))
    reasons = further_reasons(verdict)
    if reasons:
        parts.append(indented(lines(reasons)))
    return Group(*_spaced(parts))


def _head(verdict: Verdict) -> Group:
    right, tone = correctness_words(verdict)
    first = heading(kernel_words(verdict), standing(verdict, candidate=False))
    if verdict.compiled and not not_judged(verdict):
        first.append(", ")
        first.append_text(toned(right, tone))
    return Group(first, indented(Text(provenance(verdict), style="dim")))


def _measuring(timing: Timing) -> list[tuple[str, Text | str]]:
    """Returns rows with the other measured times, and with conditions that affected the measurement."""
    rows: list[tuple[str, Text | str]] = []
    if timing.replay_period_us is not None:
        rows.append(("time, replay period", case_time_words(timing.replay_period_us, timing)))
    if timing.cupti_us is not None:
        rows.append(("time, by CUPTI", case_time_words(timing.cupti_us, timing)))
    if timing.throttled:
        rows.append(("clocks", Text("throttled while it was timed", style="magenta")))
    rows += [("timing", Text(note, style="dim")) for note in timing.notes]
    return rows


def _figures(verdict: Verdict) -> list[tuple[str, Text | str]]:
    rows: list[tuple[str, Text | str]] = []
    if verdict.objective is not None:
        result = verdict.objective
        basis = "" if result.basis == "predicted" else f"{result.basis}, "
        met = {True: "met", False: "not met", None: "undecided"}[result.met]
        rows.append((METRIC_WORDS[result.name], f"{objective_words(result)} ({basis}{met})"))
    if verdict.timing is not None:
        style = "italic" if verdict.timing.kind == "predicted" else ""
        note = ", not measured: confirm on a GPU" if verdict.timing.kind == "predicted" else ""
        rows.append(("time", Text(timing_words(verdict.timing) + note, style=style)))
        if verdict.timing.cold_l2_us is not None:
            rows.append(("time, cold L2", case_time_words(verdict.timing.cold_l2_us, verdict.timing)))
        if verdict.predicted is not None:
            rows.append(("time, predicted", Text(beside_words(verdict.timing, verdict.predicted), style="italic")))
        rows += _measuring(verdict.timing)
    if verdict.speedup is not None:
        style = "italic" if verdict.speedup.kind == "predicted" else ""
        rows.append(("against the baseline", Text(speedup_words(verdict.speedup), style=style)))
    rows += [(name, toned(said)) for name, said in alternative_rows(verdict)]
    resources = verdict.resources
    if resources is not None:
        spilled = {None: "spills unknown", 0: "no spills"}.get(
            resources.spill_bytes, f"{resources.spill_bytes} B spilled"
        )
        rows.append(("registers", f"{resources.registers} per thread, {spilled}"))
        rows.append(("shared memory", f"{shared_words(resources)} per block"))
        if resources.local_bytes:
            rows.append(("local memory", f"{byte_words(resources.local_bytes)} per thread"))
    occupancy = verdict.occupancy
    if occupancy is not None:
        rows.append(("occupancy", f"{occupancy_words(occupancy)}; {plural(occupancy.blocks_per_sm, 'block')} per SM"))
        rows.append(("waves", wave_words(occupancy)))
    return rows


def case_table(cases: Sequence[Case], verdict: Verdict) -> Table:
    """Shows correctness per size; an error of up to 1 tolerance passes."""
    timed = any(case.median_us is not None for case in cases)
    predicted = verdict.timing is None or verdict.timing.kind == "predicted"
    heads = ["size", "from", "result", "max error"]
    heads += ["predicted time" if predicted else "time"] if timed else []
    made = table(*heads, right=(3, 4) if timed else (3,))
    for case in cases:
        word, tone = case_words(case)
        cells = [toned(size_words(case.size)), toned(case.origin), toned(word, tone), toned(error_words(case))]
        if timed:
            cells.append(Text(case_time_words(case.median_us, verdict.timing), style="italic" if predicted else ""))
        made.add_row(*cells)
    return made


def first_wrong_lines(cases: Sequence[Case]) -> list[RenderableType]:
    """Shows the first wrong element of each wrong size."""
    return [
        indented(toned(f"wrong at {size_words(case.size)}: {wrong_words(case.first_wrong)}"))
        for case in cases
        if case.correct is False and case.first_wrong is not None
    ]


def counter_table(counters: Counters) -> Table:
    """Shows memory requests of one launch at the headline size, without unknown counters."""
    made = table(f"counted ({counters.source})", "per launch", right=(1,))
    moved = global_bytes(counters)
    if moved is not None:
        made.add_row("global memory moved", byte_words(moved))
    for field in fields(counters):
        value = getattr(counters, field.name)
        if field.name in COUNTER_WORDS and value is not None:
            shown = byte_words(value) if field.name in BYTE_COUNTERS else number(value)
            made.add_row(COUNTER_WORDS[field.name], shown)
    for name, shown in cache_rows(counters.caches):
        made.add_row(Text(name, style="italic"), Text(shown, style="italic"))
    for name, shown in mix_rows(counters):
        made.add_row(name, toned(shown))
    return made


def check_line(verdict: Verdict) -> Text:
    """Formats one line of `check --quiet`."""
    line = heading(kernel_words(verdict), ("compiles", "good") if verdict.compiled else uncompiled_words(verdict))
    if verdict.resources is not None:
        resources = verdict.resources
        line.append(f", {resources.registers} registers, {byte_words(shared_bytes(resources))} shared")
    if verdict.occupancy is not None:
        line.append(f", occupancy {occupancy_words(verdict.occupancy)}")
    return line


def verdict_line(verdict: Verdict, *, candidate: bool = False) -> Text:
    """Formats the verdict in one line, for `--quiet`."""
    line = heading(kernel_words(verdict), standing(verdict, candidate=candidate))
    if verdict.compiled and verdict.cases:
        line.append(f", {correctness_words(verdict)[0]}")
    return line
