"""Wording of figures and standings: figures always have units, and predictions are marked with `~` or in words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from kernelmate.records import (
    AS_BASELINE,
    NO_RACE_SEEN,
    Alternative,
    Case,
    Counters,
    FindingCode,
    FirstWrong,
    LaunchShape,
    MetricName,
    ObjectiveResult,
    Occupancy,
    Resources,
    Speedup,
    Timing,
    Verdict,
)

Tone = Literal["good", "bad", "doubt", "plain"]

METRIC_WORDS: dict[MetricName, str] = {
    "time": "time",
    "shared_bytes": "shared memory per block",
    "registers": "registers per thread",
    "local_bytes": "local memory per thread",
    "global_bytes": "global memory moved",
    "occupancy": "theoretical occupancy",
    "accuracy": "largest error, in tolerances",
    "correct": "rightness",
}
LIMITER_WORDS: dict[str, str] = {
    "registers": "registers",
    "shared": "shared memory",
    "blocks": "blocks per SM",
    "threads": "threads per SM",
    "launch": "the launch (the block does not fit)",
}
COUNTER_WORDS: dict[str, str] = {
    "global_load_requests": "global load requests",
    "global_load_sectors": "global load sectors",
    "global_store_requests": "global store requests",
    "global_store_sectors": "global store sectors",
    "global_atomic_requests": "global atomic requests",
    "global_bytes_asked": "global bytes asked for",
    "shared_load_wavefronts": "shared load wavefronts",
    "shared_store_wavefronts": "shared store wavefronts",
    "bank_conflicts": "bank conflicts",
    "local_sectors": "local sectors",
    "divergent_branches": "divergent branches",
    "thread_instructions": "thread instructions",
    "global_atomic_sectors": "global atomic sectors",
    "footprint_bytes": "global memory touched",
    "barriers": "barriers of blocks",
}
BYTE_COUNTERS = frozenset({"global_bytes_asked", "footprint_bytes"})
SECTOR_BYTES = 32

_HIDDEN = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]")


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Escape text from a file or a model that could control a terminal or hide code.

    Control characters (terminal escapes above all), lone surrogates, and the marks that reverse the reading direction
    become `\x1b`, `\udcff`, `\u202e`; characters in `keep` are unchanged.
    """

    def shown(char: str) -> str:
        if char in keep:
            return char
        if unicodedata.category(char) in {"Cc", "Cs"} or _HIDDEN.match(char):
            code = ord(char)
            return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
        return char

    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def one_line(text: str) -> str:
    """Returns text as one printable line."""
    return printable(" ".join(text.split()), keep="")


def size_words(size: Mapping[str, int]) -> str:
    """Formats `rows=37 cols=853`."""
    return " ".join(f"{name}={value}" for name, value in size.items()) or "(no sizes)"


def number(value: float) -> str:
    """Formats with three significant digits and thousands separators: `12.1`, `1,280,000`, `0.0021`, `3.1e+09`."""
    if not math.isfinite(value):
        return "not finite"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(value: float | None) -> str:
    """Formats a count, or `unknown`."""
    return "unknown" if value is None else number(value)


def byte_words(value: float | None) -> str:
    """Formats bytes: `1,024 B`, `48.0 KiB`, `3.5 MiB`; exact below 64 KiB, where every byte of shared memory counts."""
    if value is None:
        return "unknown"
    if value < 65536:
        return f"{value:,.0f} B"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    raise AssertionError("unreachable")


def time_words(value: float | None) -> str:
    """Formats microseconds: `12.1 us`, `3.40 ms`, `850 ns`."""
    if value is None or not math.isfinite(value):
        return "unknown"
    unit, size = _time_unit(value)
    return f"{value / size:.3g} {unit}"


def _time_unit(value: float) -> tuple[str, float]:
    """Returns the unit in which a time has one to three digits before the point, and that unit in microseconds."""
    if abs(value) >= 1e6:
        return "s", 1e6
    if abs(value) >= 1000:
        return "ms", 1000.0
    return ("ns", 0.001) if 0 < abs(value) < 1 else ("us", 1.0)


def percent(value: float | None) -> str:
    """Formats a fraction of 1 as a percentage."""
    return "unknown" if value is None else f"{value * 100:.3g}%"


def timing_words(timing: Timing | None) -> str:
    """Formats `12.1 us [12, 12.2]` if measured, `~12.1 us [6, 24] predicted` if predicted."""
    if timing is None:
        return "not timed"
    unit, size = _time_unit(timing.median_us)
    low, high = (f"{bound / size:.3g}" if math.isfinite(bound) else "?" for bound in timing.ci95_us)
    shown = f"{timing.median_us / size:.3g} {unit} [{low}, {high}]"
    return f"~{shown} predicted" if timing.kind == "predicted" else shown


def beside_words(measured: Timing, predicted: Timing) -> str:
    """Formats the prediction for a measured time: `~10.1 us [6.7, 15.2] predicted; measured is 1.20x that, inside`."""
    low, high = predicted.ci95_us
    inside = "inside its error" if low <= measured.median_us <= high else "outside its stated error"
    ratio = measured.median_us / predicted.median_us if predicted.median_us > 0 else math.nan
    return f"{timing_words(predicted)}; measured is {number(ratio)}x that, {inside}"


def case_time_words(median_us: float | None, timing: Timing | None) -> str:
    """Formats the time of one size; predicted if the headline's time is."""
    if median_us is None:
        return "-"
    return time_words(median_us) if timing is not None and timing.kind == "measured" else f"~{time_words(median_us)}"


def speedup_words(speedup: Speedup, *, concluded: bool = True) -> str:
    """Formats a speed-up: `1.42x [1.40, 1.44] faster`, or `~1.42x [...] predicted, confirm on a GPU`.

    Args:
        speedup: the ratio of two times.
        concluded: False to leave out the conclusion: `1.02x [0.92, 1.48]`.
    """
    low, high = speedup.ci95
    ratio = f"{times_words(speedup.median)}x [{times_words(low)}, {times_words(high)}]"
    by = " by the contract's weights" if speedup.weighted else ""
    undecided = low <= 1 <= high
    if speedup.kind == "predicted":
        return f"~{ratio} predicted{by}" + (
            f", {'undecided' if undecided else 'confirm on a GPU'}" if concluded else ""
        )
    if not concluded:
        return ratio + by
    if undecided:
        return f"{ratio} undecided{by}"
    return f"{ratio} {'faster' if low > 1 else 'as fast: slower'}{by}"


ALTERNATIVES = {"torch": "torch", "compile": "torch.compile", "cublas": "cuBLAS"}
"""Display names of the libraries with which a verdict's time is compared."""


def alternative_words(one: Alternative) -> str:
    """Formats `1.32x [1.30, 1.34] faster: it takes 24.1 us, the kernel 18.2 us (softmax, from reference.py:softmax; TF32 off)`."""
    called = "; ".join(part for part in (one.computation, one.precision) if part)
    if one.timing is None or one.kernel is None or one.speedup is None:
        return f"not timed: {one.why or 'unknown'} ({called})"
    times = f"it takes {time_words(one.timing.median_us)}, the kernel {time_words(one.kernel.median_us)}"
    return f"{speedup_words(one.speedup)}: {times} ({called})"


def alternative_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Returns a name and a sentence for each library that computes the same."""
    return [(f"against {ALTERNATIVES[one.name]}", alternative_words(one)) for one in verdict.against or ()]


def ratio_words(speedup: Speedup) -> str:
    """Formats `1.42x`, or `~1.42x` if predicted."""
    return ("~" if speedup.kind == "predicted" else "") + f"{times_words(speedup.median)}x"


def times_words(value: float) -> str:
    """Formats a ratio by three significant digits, below 10 by two decimals: `0.97`, `1.42`, `28.0`, `119`."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def metric_words(metric: MetricName, value: float | None) -> str:
    """Formats one metric's value with its unit."""
    if value is None:
        return "unknown"
    if metric == "correct":
        return "right" if value else "not right"
    if metric == "time":
        return time_words(value)
    if metric == "occupancy":
        return percent(value)
    if metric in {"shared_bytes", "local_bytes", "global_bytes"}:
        return byte_words(value)
    return number(value)


def objective_words(result: ObjectiveResult) -> str:
    """Formats `16,384 B -> 8,192 B`, or `~12.1 us -> ~8.4 us predicted` if predicted."""
    before, after = metric_words(result.name, result.before), metric_words(result.name, result.after)
    by = " by weights" if result.weighted else ""
    if result.basis == "predicted":
        return f"~{before} -> ~{after} predicted{by}"
    return f"{before} -> {after}{by}"


def occupancy_words(occupancy: Occupancy) -> str:
    """Formats `75%, limited by registers`."""
    if occupancy.limiter == "launch":
        return "0%: the block does not fit on this GPU"
    return f"{percent(occupancy.theoretical)}, limited by {LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)}"


def wave_words(occupancy: Occupancy) -> str:
    """Formats the number of waves of the grid, and the fill of the last one."""
    waves = occupancy.waves
    if waves is None:
        return "waves unknown"
    if waves <= 0:
        return "no blocks"
    if waves < 1:
        return f"{number(waves)} waves: {percent(waves)} of the block slots are used"
    tail = waves - math.floor(waves)
    if tail < 1e-9:
        return f"{number(waves)} waves, no tail"
    return f"{number(waves)} waves, the last {percent(tail)} full"


def shared_bytes(resources: Resources) -> int:
    """Returns static and dynamic shared memory of one block."""
    return resources.shared_bytes + resources.dynamic_shared_bytes


def shared_words(resources: Resources) -> str:
    """Formats `1,024 B (1,024 static + 0 dynamic)`."""
    total = byte_words(shared_bytes(resources))
    if not resources.dynamic_shared_bytes or not resources.shared_bytes:
        which = "dynamic" if resources.dynamic_shared_bytes else "static"
        return f"{total} {which}" if shared_bytes(resources) else total
    return f"{total} ({resources.shared_bytes:,} static + {resources.dynamic_shared_bytes:,} dynamic)"


def launch_words(shape: LaunchShape) -> str:
    """Formats `4,096 blocks of 256 threads`, with the dimensions if there is more than one."""

    def sides(extent: tuple[int, int, int]) -> str:
        return " x ".join(f"{side:,}" for side in extent if side != 1) if sum(s != 1 for s in extent) > 1 else ""

    parts = []
    for total, word, extent in ((shape.blocks, "block", shape.grid), (shape.threads, "thread", shape.block)):
        parts.append(plural(total, word) + (f" ({sides(extent)})" if sides(extent) else ""))
    dynamic = f", {shape.shared_bytes:,} B dynamic shared" if shape.shared_bytes else ""
    return " of ".join(parts) + dynamic


def global_bytes(counters: Counters | None) -> int | None:
    """Returns the bytes that global loads and stores move: 32 per sector."""
    if counters is None or counters.global_load_sectors is None or counters.global_store_sectors is None:
        return None
    return SECTOR_BYTES * (counters.global_load_sectors + counters.global_store_sectors)


def wrong_words(first: FirstWrong | None) -> str:
    """Formats `y[0, 5]: want 1.0, got 0.5`."""
    if first is None:
        return ""

    def value(it: float | None) -> str:
        return "not finite" if it is None else f"{it:.6g}"

    element = f"{printable(first.argument)}[{', '.join(map(str, first.index))}]"
    return f"{element}: want {value(first.want)}, got {value(first.got)}"


def error_words(case: Case) -> str:
    """Formats the largest error of a size, in tolerances: up to 1 passes."""
    if case.max_error is None:
        return "-"
    return f"{number(case.max_error)} tol" if math.isfinite(case.max_error) else "not finite"


def case_words(case: Case) -> tuple[str, Tone]:
    """Returns the result of one size, in one or two words."""
    if case.correct is False:
        if case.baseline_correct is False:
            return "wrong, baseline too", "doubt"
        return "WRONG", "bad"
    if case.degenerate:
        return "degenerate", "plain"
    if case.correct is None:
        return "not compared", "plain"
    if case.baseline_correct is False:
        return "right, baseline wrong", "good"
    return "right", "good"


def correctness_words(verdict: Verdict) -> tuple[str, Tone]:
    """Returns the correctness of a version, with the number of wrong sizes."""
    if not verdict.compiled:
        return "not compiled" if _turned_away(verdict) else "does not compile", "bad"
    judged = [case for case in verdict.cases if case.correct is not None]
    wrong = [case for case in judged if case.correct is False]
    if verdict.correct is False:
        if wrong:
            return f"WRONG at {len(wrong)} of {len(judged)} sizes", "bad"
        return "WRONG", "bad"
    if verdict.correct is None:
        if not_judged(verdict):
            return "not known", "doubt"
        if not verdict.cases:
            return "not run", "plain"
        if verdict.unreached:
            return "not known", "doubt"
        if verdict.compared:
            return "its cases cannot tell right from wrong", "doubt"
        return "not compared, since there is no reference", "doubt"
    if verdict.assumes:
        return f"right where {' and '.join(verdict.assumes)}, which it assumes", "doubt"
    if wrong:
        return f"right at {len(judged) - len(wrong)} of {len(judged)} sizes", "doubt"
    return f"right at all {len(judged)} sizes" if len(judged) != 1 else "right at 1 size", "good"


STAGES = {
    "compile": "compiling",
    "reference": "running the reference",
    "cases": "checking sizes",
    "guards": "running the guards",
    "timing": "timing",
}
"""Display names of judging stages, by the name that `on_progress` gets."""

NOT_JUDGED = frozenset(
    {FindingCode.TIME_LIMIT, FindingCode.OUT_OF_MEMORY, FindingCode.WORKER_CRASH, FindingCode.UNSUPPORTED_INSTRUCTION}
)
"""Codes of findings that explain why correctness is undecided."""


def not_judged(verdict: Verdict) -> bool:
    """Returns True if judging a version did not finish, so that nothing is known about it."""
    return verdict.correct is None and any(finding.code in NOT_JUDGED for finding in verdict.findings)


def _turned_away(verdict: Verdict) -> bool:
    """Returns True if the version's text was rejected before compilation."""
    return any(finding.code == FindingCode.FORBIDDEN_SOURCE for finding in verdict.findings)


def standing(verdict: Verdict, *, candidate: bool = True) -> tuple[str, Tone]:
    """Returns the verdict in one or two words.

    They are `ready to accept`, `promising` (met by prediction, to be confirmed on a GPU), `undecided` (the gain is
    within the prediction's error), `not settled`, `not judged`, `rejected`. `accepted` is reserved for versions that a
    person has accepted.

    Args:
        verdict: the verdict.
        candidate: True for a candidate; a kernel judged by itself is `clean`, `has warnings` or `not good`.
    """
    if not verdict.compiled and not verdict.unsupported:
        return "does not compile", "bad"
    if not_judged(verdict):
        return "not judged", "doubt"
    if verdict.accepted is False:
        return "rejected" if candidate else "not good", "bad"
    if verdict.accepted and not candidate and any(finding.severity == "warning" for finding in verdict.findings):
        return "has warnings", "doubt"
    if verdict.accepted:
        return "ready to accept" if candidate else "clean", "good"
    if verdict.objective is not None and verdict.objective.met:
        return "promising", "doubt"
    if verdict.undecided:
        return "undecided", "doubt"
    return "not settled", "doubt"


def standing_because(verdict: Verdict) -> tuple[str, Tone]:
    """Returns a candidate's standing; that of a rejected one with its first reason: `rejected: wrong-at-size: ...`."""
    word, tone = standing(verdict)
    reasons = distinguishing_reasons(verdict) if tone == "bad" else ()
    if not reasons:
        return word, tone
    why = one_line(reasons[0])
    return (why if why.startswith(word) else f"{word}: {why}"), tone


def gain_sentence(verdict: Verdict, *, concluded: bool = True) -> str:
    """Formats a candidate's gain for the first line of a result: `1.42x [1.40, 1.44] faster`, `16,384 B -> 8,192 B`.

    Args:
        verdict: the candidate's verdict.
        concluded: False to leave out the conclusion of a speed-up.
    """
    result, ratio = verdict.objective, verdict.speedup
    if ratio is not None and (result is None or result.name == "time"):
        return speedup_words(ratio, concluded=concluded)
    if result is None or result.name == "correct":
        return ""
    return f"{METRIC_WORDS[result.name]} {objective_words(result)}"


def cases_sentence(verdict: Verdict) -> tuple[str, Tone]:
    """Formats `right on 14 cases`, `wrong on 3 of 14 cases`, `as the baseline on 14 cases`; otherwise as `correctness_words`."""
    judged = [case for case in verdict.cases if case.correct is not None]
    wrong = sum(case.correct is False for case in judged)
    if not verdict.compiled or not judged or verdict.correct is None:
        return correctness_words(verdict)
    if wrong:
        return f"wrong on {wrong} of {plural(len(judged), 'case')}", "bad" if verdict.correct is False else "doubt"
    if not verdict.correct:
        return correctness_words(verdict)
    agrees = "as the baseline" if verdict.as_baseline else "right"
    return f"{agrees} on {plural(len(judged), 'case')}", "good"


def stopped_words(judged: int, best: int | None) -> str:
    """Formats the end of a stopped search: `stopped: 3 judged, best is #2`; `best` counts from 0."""
    return f"stopped: {judged} judged" + ("" if best is None else f", best is #{best + 1}")


def further_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Returns the trade-offs, and reasons beyond the findings and diagnostics shown beside them."""
    said = {f"{finding.code}: {finding.message}" for finding in verdict.findings}
    said |= {f"does not compile: {diagnostic.message}" for diagnostic in verdict.diagnostics}
    return tuple(reason for reason in verdict.reasons if reason not in said) + trade_off_lines(verdict)


def distinguishing_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Returns reasons and trade-offs that distinguish versions in a list."""
    reasons = tuple(reason for reason in verdict.reasons if not reason.startswith((NO_RACE_SEEN, AS_BASELINE)))
    return reasons + trade_off_lines(verdict)


def trade_off_lines(verdict: Verdict) -> tuple[str, ...]:
    """Returns `trade-off: registers per thread: 38 before, 40 after` for each trade-off."""
    return tuple(f"trade-off: {one}" for one in verdict.trade_offs)


def uncompiled_words(verdict: Verdict) -> tuple[str, Tone]:
    """Returns the standing of a version without code: an error, or a note with the reason (no instances, inactive)."""
    return ("does not compile", "bad") if verdict.accepted is False else ("not compiled", "plain")


def kernel_words(verdict: Verdict) -> str:
    """Returns the kernel's name, with its instance if it is a template."""
    return printable(verdict.instance or verdict.kernel)


def plural(items: int, word: str) -> str:
    """Formats a count with its noun: `1 warning`, `2 warnings`."""
    return f"{items:,} {word}" if items == 1 else f"{items:,} {word}s"


def listed(words: Iterable[str]) -> str:
    """Joins words: `a, b and c`."""
    given: Sequence[str] = list(words)
    return " and ".join(filter(None, [", ".join(given[:-1]), *given[-1:]]))
