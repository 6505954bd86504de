"""Short phrases for verdicts in lenses, hovers and progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from urllib.parse import unquote

from lsprotocol import types

from kernelmate.decide.metrics import better
from kernelmate.records import Judged, Optimization, Verdict
from kernelmate.report.words import (
    LIMITER_WORDS,
    byte_words,
    correctness_words,
    listed,
    not_judged,
    objective_words,
    percent,
    plural,
    ratio_words,
    shared_bytes,
    speedup_words,
    standing,
    time_words,
    trade_off_lines,
)
from kernelmate.suggest.diagnosis import diagnose

NEAREST = 2
"""Number of candidates that the message names if none is worth taking."""


def resource_phrase(verdict: Verdict) -> str:
    """Formats resources and occupancy: `32 regs · 8.0 KiB shared · 75% occupancy (registers)`."""
    parts = []
    resources, occupancy = verdict.resources, verdict.occupancy
    if resources is not None:
        parts.append(f"{resources.registers} regs")
        if shared_bytes(resources):
            parts.append(f"{byte_words(shared_bytes(resources))} shared")
        if resources.spill_bytes:
            parts.append(f"{byte_words(resources.spill_bytes)} spilled")
    if occupancy is not None:
        limiter = LIMITER_WORDS.get(occupancy.limiter, occupancy.limiter)
        parts.append(f"{percent(occupancy.theoretical)} occupancy ({limiter})")
    return " · ".join(parts)


def time_phrase(verdict: Verdict, at: float, *, stale: bool, guessed: bool = False) -> str:
    """Formats a benchmark's time and age, and doubts about it: `12.1 us measured 2 min ago`.

    With doubts: `~3.72 us predicted just now, NOT VERIFIED: no reference, before the last change`.

    Args:
        verdict: the verdict.
        at: time of the verdict, in seconds since 1970.
        stale: True if the text was changed since.
        guessed: True if there was no contract, so that launch and arrays were inferred.
    """
    said = correctness_words(verdict)[0]
    if verdict.accepted is False or verdict.timing is None:
        shown = said
    elif verdict.timing.kind == "measured":
        shown = f"{time_words(verdict.timing.median_us)} measured"
    else:
        shown = f"~{time_words(verdict.timing.median_us)} predicted"
    doubts = [*_missing(verdict), *(["guessed contract"] if guessed else [])]
    unsure = f", NOT VERIFIED: {', '.join(doubts)}" if doubts and verdict.accepted is not False else ""
    return f"{shown} {ago(at)}" + unsure + (", before the last change" if stale else "")


def _missing(verdict: Verdict) -> list[str]:
    """Returns the reasons why a version that ran is not known to be right; empty without any."""
    if verdict.correct is None and verdict.timing is not None:
        return ["not judged" if not_judged(verdict) or verdict.unreached else "no reference"]
    if verdict.correct and all(case.held_against != "reference" for case in verdict.cases):
        return ["agrees with the earlier text, which has no reference"]
    return []


def candidate_phrase(verdict: Verdict) -> str:
    """Formats a candidate's verdict: `ready to accept: 16,384 B -> 8,192 B; 1.42x [1.40, 1.44] faster`.

    Trade-offs follow.
    """
    parts = [standing(verdict)[0] + ": " + correctness_words(verdict)[0]]
    if verdict.objective is not None:
        parts.append(objective_words(verdict.objective))
    if verdict.speedup is not None:
        parts.append(speedup_words(verdict.speedup))
    return "; ".join((*parts, *trade_off_lines(verdict)))


def others_phrase(others: Sequence[types.TextDocumentEdit]) -> str:
    """Returns which other files a candidate's edit changes: `; changes launches in main.cu`; empty without any."""
    names = [unquote(one.text_document.uri).rpartition("/")[2] for one in others]
    return f"; changes {'its launch' if len(names) == 1 else 'launches'} in {listed(names)} too" if names else ""


def nothing_phrase(found: Optimization) -> str:
    """Returns the message for a search without a useful result: the kernel's limiter, and the nearest candidates."""
    parts = [f'Nothing that does "{found.objective.prompt}" was found.']
    bound = next(iter(diagnose(found.baseline)), None) if found.objective.metric == "time" else None
    if bound is not None:
        parts.append(f"{found.baseline.kernel} is {bound.what}" if bound.code == "bound" else bound.what)
        parts[-1] = parts[-1].rstrip(".") + "."
    right = [one for one in found.candidates if one.verdict.compiled and one.verdict.correct is not False]
    nearest = sorted(right, key=_nearness)[:NEAREST]
    if nearest:
        parts.append(f"Nearest of {plural(len(found.candidates), 'candidate')}: {'; '.join(map(_near_miss, nearest))}.")
    elif found.candidates:
        wrong = found.candidates[0].verdict.reasons
        parts.append(f"All {len(found.candidates)} candidates are wrong" + (f", the first because: {wrong[0]}." if wrong else "."))  # fmt: skip
    else:
        parts.append("No rewrite applies to it." if not found.notes else " ".join(found.notes))
    return " ".join(parts)


def _nearness(one: Judged) -> float:
    """Returns a sort key, smallest for the best: the inverse speedup, else the ratio of the objective's metric."""
    verdict = one.verdict
    if verdict.speedup is not None and verdict.speedup.median:
        return 1 / verdict.speedup.median
    asked = verdict.objective
    if asked is None or not asked.before or asked.after is None:
        return inf
    return asked.after / asked.before if better(asked.name) == "lower" else asked.before / max(asked.after, 1e-9)


def _near_miss(one: Judged) -> str:
    """Formats a candidate: `vectorize, ~1.01x predicted: the gain is within the prediction's error`."""
    verdict, gain = one.verdict, ""
    if verdict.speedup is not None:
        gain = f", {ratio_words(verdict.speedup)} {verdict.speedup.kind}"
    elif verdict.objective is not None:
        gain = f", {objective_words(verdict.objective)}"
    why = f": {verdict.reasons[0]}" if verdict.reasons else ""
    name = one.candidate.author.partition(":")[2] or one.candidate.author
    return name.replace("-", " ") + gain + why


def ago(at: float) -> str:
    """Formats the time since a moment (in seconds since 1970) in the largest unit that fits: `2 min ago`."""
    seconds = max(0.0, time.time() - at)
    if seconds < 60:
        return "just now"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    raise AssertionError("unreachable")
