"""Ranking of candidates: by the objective and, within its noise, by preferred structure and simplicity."""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Sequence

from kernelmate.decide.acceptance import NOISE
from kernelmate.decide.constraints import suits
from kernelmate.decide.metrics import better, metric_value
from kernelmate.measure.statistics import EDITED
from kernelmate.records import Contract, Judged, Kernel, Objective, Speedup, Verdict

TELLING_CHARACTERS = 8
"""Minimum length of a line, in characters, that counts as evidence of a copied kernel body."""


def best_first(found: Sequence[Judged], objective: Objective, kernel: Kernel, contract: Contract) -> list[Judged]:
    """Sorts candidates, the best first.

    By standing, then objective, and within its noise by preferred structure and simplicity.

    Args:
        found: candidates judged against one baseline.
        objective: the objective.
        kernel: the baseline.
        contract: the baseline's contract.
    """
    left = sorted(found, key=lambda judged: rank(judged.verdict, objective))
    ranked: list[Judged] = []
    while left and left[0].verdict.accepted is not False:
        first = left[0].verdict
        close = [one for one in left if _within_noise(first, one.verdict, objective)]
        simplest = min(
            close, key=lambda one: (-suits(objective, one.candidate.author), complexity(one, kernel, contract))
        )
        ranked.append(simplest)
        left = [one for one in left if one is not simplest]
    return ranked + left


def rank(verdict: Verdict, objective: Objective) -> tuple[int, bool, bool, float]:
    """Returns the sort key of a version: standing, then correct before wrong, then the objective's metric."""
    standing = 2 if verdict.undecided else {True: 0, None: 1, False: 3}[verdict.accepted]
    value = _value(verdict, objective)
    sign = 1.0 if better(objective.metric) == "lower" else -1.0
    return standing, verdict.correct is False or not verdict.compiled, value is None, sign * (value or 0.0)


def complexity(judged: Judged, kernel: Kernel, contract: Contract) -> tuple[int, bool, int]:
    """Returns a sort key for a version's complexity: added `require` conditions, a duplicated kernel, changed lines."""
    candidate = judged.candidate
    assumed = len(set(candidate.contract.require) - set(contract.require))
    before, after = kernel.unit.text, candidate.kernel.unit.text
    name = kernel.name.rpartition("::")[2]
    return assumed, second_copy(name, kernel.source, before, after), changed_lines(before, after)


@functools.lru_cache(1024)
def changed_lines(before: str, after: str) -> int:
    """Returns the number of lines that differ: for each changed stretch the length of its longer side."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    changed = (code for code in matcher.get_opcodes() if code[0] != "equal")
    return sum(max(end - start, other_end - other) for _, start, end, other, other_end in changed)


@functools.lru_cache(1024)
def second_copy(name: str, source: str, before: str, after: str) -> bool:
    """Returns True if a version contains the kernel twice.

    That is, another function has the kernel's parameters, or half of the kernel's lines occur more often than before.

    Args:
        name: the kernel's name without namespaces.
        source: its definition.
        before: the text that contains the definition.
        after: the version's text.
    """
    parameters = _parameters(name, source)
    if parameters and _squeezed(after).count(parameters) > _squeezed(before).count(parameters):
        return True
    lines = [line for line in map(_squeezed, source.splitlines()) if len(line) >= TELLING_CHARACTERS]
    old = Counter(map(_squeezed, before.splitlines()))
    new = Counter(map(_squeezed, after.splitlines()))
    again = [line for line in lines if new[line] > old[line]]
    return (bool(again) and 2 * len(again) >= len(lines)) or _work_again(source, before, after)


_ELEMENT = re.compile(r"\w+(?:\.at)?\[[^\[\]]*\]|\w+\.[xyzw]\b")


def _work_again(source: str, before: str, after: str) -> bool:
    """Returns True if most of several statements on elements occur again, with other elements in them.

    That is the work of a kernel whose loads are wide, written once for a vector and once for what is left.
    """
    lines, old, new = (
        [_squeezed(_ELEMENT.sub("@", line.partition("//")[0])) for line in text.splitlines()]
        for text in (source, before, after)
    )
    work = [line for line in lines if "@" in line and len(line) >= TELLING_CHARACTERS]
    counts = Counter(new), Counter(old)
    again = [line for line in work if counts[0][line] > counts[1][line]]
    return len(work) > 1 and 2 * len(again) > len(work)


def _parameters(name: str, source: str) -> str:
    """Returns the kernel's parameter list without blanks; empty if it is too short to be distinctive."""
    found = re.search(rf"\b{re.escape(name)}\s*(\([^{{]*)", source)
    listed = "" if found is None else _squeezed(found[1])
    return listed if "," in listed else ""


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _value(verdict: Verdict, objective: Objective) -> float | None:
    """Returns the figure of the objective: for time, weighted by the contract if the verdict has all sizes."""
    asked = verdict.objective
    if asked is not None and asked.weighted and asked.name == objective.metric:
        return asked.after
    return metric_value(objective.metric, verdict)


def _within_noise(best: Verdict, other: Verdict, objective: Objective) -> bool:
    """Returns True if both have the same standing and the objective does not distinguish them.

    Measured times are equal if the intervals of their ratios to the baseline overlap, predicted times if the interval
    of their ratio contains 1, counted figures if they differ by no more than their noise.
    """
    if rank(best, objective)[:3] != rank(other, objective)[:3]:
        return False
    one, two = _value(best, objective), _value(other, objective)
    if one is None or two is None:
        return one is two
    if objective.metric != "time":
        return abs(one - two) <= NOISE[objective.metric] * abs(one) if objective.metric in NOISE else one == two
    first, second = _measured(best), _measured(other)
    if first is not None and second is not None:
        return first.ci95[0] <= second.ci95[1] and second.ci95[0] <= first.ci95[1]
    if not (one > 0 and two > 0):
        return one == two
    return EDITED.interval(max(one, two) / min(one, two))[0] <= 1


def _measured(verdict: Verdict) -> Speedup | None:
    return verdict.speedup if verdict.speedup is not None and verdict.speedup.kind == "measured" else None
