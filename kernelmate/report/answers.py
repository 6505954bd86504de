"""Answers to questions about a kernel's figures or its last search, which are shown above what limits it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from kernelmate.decide.metrics import metric_value
from kernelmate.decide.objective import metrics_named
from kernelmate.decide.spelling import fold
from kernelmate.records import Cause, MetricName, Optimization, Verdict
from kernelmate.report.roofline import BOUND_WORDS, share_words
from kernelmate.report.words import (
    cases_sentence,
    metric_words,
    number,
    occupancy_words,
    one_line,
    plural,
    shared_words,
    standing,
    timing_words,
    wave_words,
)

_BOUND = re.compile(r"\b(?:bound|bottle ?neck\w*|limit\w*|roof\w*|slow\w*)\b")
_CONFLICTS = re.compile(r"\bbank conflicts?\b")
_DURATION = re.compile(r"\bhow long\b|\bhow many (?:[unm]s|\w+seconds)\b")
_RIGHT = re.compile(
    r"\b(?:correct|right|wrong|incorrect|works?|working|safe|bugs?|bugg?y|races?|errors?|fails?|valid|deadlocks?)\b"
)
_WAVES = re.compile(r"\b(?:waves?|tail|blocks? per|how many blocks|sms? (?:used|busy|idle))\b")


_TURNED_DOWN = re.compile(
    r"\b(?:reject\w*|refus\w*|turned (?:down|away)|not (?:accepted|taken|chosen|good)|undecided|discarded)\b"
)
_NUMBER = re.compile(
    r"(?:#|\b(?:candidate|version|number) )(\d+)\b"
    rf"|(?<!\S)(\d+) (?:(?:was|is|got|were) |not )*(?:{_TURNED_DOWN.pattern})|(?<!\S)(\d+)\W*$"
)
"""A candidate's number; other numbers are of what it differs in, as in "the one with 256 threads"."""
_CHANGED = re.compile(r"\bwhat\b.*\b(?:chang\w+|differ\w*|diff|done)\b|\bwhat did (?:you|it) do\b")
_MOST = 5
"""Maximum number of candidates whose rank is reported."""


_CAUSES = re.compile(rf"\b(?:why|explain|improve\w*|faster)\b|{_BOUND.pattern}")


def causes_for(question: str, said: Sequence[str], causes: Sequence[Cause]) -> Sequence[Cause]:
    """Returns the causes to show below what answers a question: none if it is only about a figure or about candidates."""
    text = fold(question)
    of_candidates = _TURNED_DOWN.search(text) or _CHANGED.search(text)
    return causes if not said or (_CAUSES.search(text) and not of_candidates) else ()


def answers(question: str, verdict: Verdict, search: Optimization | None = None) -> tuple[str, ...]:
    """Returns a sentence for each figure or candidate that a question is about; empty if it is about none.

    Args:
        question: the user's words.
        verdict: the kernel's verdict.
        search: the result of the kernel's last search.
    """
    if not question:
        return ()
    text = fold(question)
    if search is not None and (_TURNED_DOWN.search(text) or _CHANGED.search(text)):
        return tuple(_turned_down(text, search) if _TURNED_DOWN.search(text) else _changed(search))
    found: list[str] = []
    if _CONFLICTS.search(text):
        found += _conflicts(verdict)
        text = _CONFLICTS.sub(" ", text)  # as an objective, they mean time
    found += [sentence for name in metrics_named(text) for sentence in _ABOUT[name](verdict)]
    if _DURATION.search(text):
        found += _time(verdict)
    if _BOUND.search(text):
        found += _bound(verdict)
    if _RIGHT.search(text):
        found += _right(verdict)
    if _WAVES.search(text) and verdict.occupancy is not None:
        found.append(f"The grid has {wave_words(verdict.occupancy)}.")
    return tuple(dict.fromkeys(found))


def _turned_down(text: str, search: Optimization) -> Iterator[str]:
    """Yields why candidates cannot be accepted: the one whose number the question names, else the first ones."""
    found = _NUMBER.search(text)
    named = None if found is None else int(next(filter(None, found.groups())))
    if named is not None and not 0 < named <= len(search.candidates):
        yield f"The last search has no candidate {named}."
        return
    chosen = [named] if named is not None else range(1, len(search.candidates) + 1)
    down = [(place, one) for place in chosen if not (one := search.candidates[place - 1]).verdict.accepted]
    for place, one in down[:_MOST]:
        said, reasons = standing(one.verdict)[0], "; ".join(map(one_line, one.verdict.reasons))
        because = f": {reasons.rstrip('.')}" if reasons else ""
        yield f"{place} ({one.candidate.author}) is {said.replace('does', 'one that does')}{because}."
    if len(down) > _MOST:
        yield f"{len(down) - _MOST} more are in the list of the last result."
    if not down:
        yield ("No candidate of the last search was turned down." if named is None else f"{named} was not turned down.")


def _changed(search: Optimization) -> Iterator[str]:
    """Yields the changes of the best candidate, in its author's words."""
    if search.best is None:
        yield "The last search changed nothing: no candidate was worth taking."
        return
    best = search.candidates[search.best].candidate
    yield f"{search.best + 1} ({best.author}): {one_line(best.why)}"


def _time(verdict: Verdict) -> Iterator[str]:
    if verdict.timing is not None:
        yield f"One launch takes {timing_words(verdict.timing)}."


def _conflicts(verdict: Verdict) -> Iterator[str]:
    counted = None if verdict.counters is None else verdict.counters.bank_conflicts
    if counted is not None:
        yield (
            f"A launch has {plural(counted, 'bank conflict')} in shared memory."
            if counted
            else "It has no bank conflicts."
        )


def _bound(verdict: Verdict) -> Iterator[str]:
    placed = verdict.roofline
    if placed is not None:
        cold, warm = share_words(placed.cold, placed), share_words(placed.warm, placed)
        yield f"It is bound by {BOUND_WORDS[placed.bound]}, as predicted, and reaches {cold} of its roof with nothing in L2, {warm} warm."


def _right(verdict: Verdict) -> Iterator[str]:
    words = cases_sentence(verdict)[0]
    yield f"It is {words}." if words.startswith(("right", "wrong", "not", "WRONG")) else f"It {words}."
    errors = [one for one in verdict.findings if one.severity == "error"]
    if errors:
        line = "" if errors[0].line is None else f" at line {errors[0].line}"
        yield f"{plural(len(errors), 'error')}, the first {errors[0].code}{line}: {errors[0].message.rstrip('.')}."


def _occupancy(verdict: Verdict) -> Iterator[str]:
    if verdict.occupancy is not None:
        yield f"Its occupancy is {occupancy_words(verdict.occupancy)}."


def _registers(verdict: Verdict) -> Iterator[str]:
    if verdict.resources is not None:
        limited = verdict.occupancy is not None and verdict.occupancy.limiter == "registers"
        yield f"It uses {number(verdict.resources.registers)} registers per thread{', which limit its occupancy' if limited else ''}."


def _local(verdict: Verdict) -> Iterator[str]:
    if verdict.resources is None:
        return
    spilled = verdict.resources.spill_bytes or 0
    spills = f"{spilled:,} bytes of it by spills" if spilled else "no spills"
    held = verdict.resources.local_bytes
    yield (
        f"A thread uses {held:,} bytes of local memory, {spills}."
        if held or spilled
        else "It uses no local memory and spills nothing."
    )


def _shared(verdict: Verdict) -> Iterator[str]:
    if verdict.resources is not None:
        used = metric_value("shared_bytes", verdict)
        yield f"Shared memory of a block: {shared_words(verdict.resources)}." if used else "It uses no shared memory."


def _moved(verdict: Verdict) -> Iterator[str]:
    moved = metric_value("global_bytes", verdict)
    if moved is not None:
        yield f"A launch moves {metric_words('global_bytes', moved)} through global memory, in whole sectors of 32 bytes."


def _accuracy(verdict: Verdict) -> Iterator[str]:
    error = metric_value("accuracy", verdict)
    if error is not None:
        yield f"Its largest error is {number(error)} of the tolerance."


_ABOUT: dict[MetricName, Callable[[Verdict], Iterator[str]]] = {
    "time": _time,
    "occupancy": _occupancy,
    "registers": _registers,
    "local_bytes": _local,
    "shared_bytes": _shared,
    "global_bytes": _moved,
    "accuracy": _accuracy,
    "correct": _right,
}
