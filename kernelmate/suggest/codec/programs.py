"""Steps of an answer: rewrites and their variants, each applied to the previous result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.applicable import MOST_VARIANTS, REWRITES, Offer, assumed
from kernelmate.suggest.codec.base import CodecVersion, Question, UndecodableAnswer
from kernelmate.suggest.codec.requests import launch_of

MOST_STEPS = 5
MOST_TRIED = 400
"""Largest number of versions to try in a search for the steps that lead to one."""

Step = tuple[str, int]
"""A rewrite's name and the index of a variant, from 0."""

Named = tuple[str, int | None]
"""A rewrite's name with the index of a variant, if known."""

_AUTHOR = re.compile(r"\brecipe:([a-z0-9+#-]+)")


def taken(request: SuggestRequest, steps: Sequence[Step]) -> tuple[SuggestRequest, list[str]]:
    """Apply steps to a request, and return it with the reason of each.

    Raises:
        UndecodableAnswer: a rewrite does not exist or has no such variant there, or there are too many steps.
    """
    whys: list[str] = []
    if len(steps) > MOST_STEPS:
        raise UndecodableAnswer(f"The answer takes more than {MOST_STEPS} steps.")
    for name, number in steps:
        if name not in REWRITES:
            raise UndecodableAnswer(f"There is no recipe {name}.")
        candidate = next(islice(REWRITES[name].candidates(request), number, None), None)
        if candidate is None:
            raise UndecodableAnswer(f"The recipe {name} has no variant {number} here.")
        request = after(request, candidate)
        whys.append(candidate.why)
    return request, whys


def after(request: SuggestRequest, candidate: Candidate) -> SuggestRequest:
    """Returns the request with a candidate in place of its kernel."""
    return replace(request, kernel=candidate.kernel, contract=candidate.contract)


def named_steps(analysis: Sequence[str]) -> list[Named] | None:
    """Returns the rewrites of an author such as `recipe:coalesce+unroll#1` among sentences; None if none is named."""
    found = _AUTHOR.search(" ".join(analysis))
    parts = [part.partition("#") for part in found[1].split("+")] if found is not None else []
    if not parts or not all(name in REWRITES for name, _, _ in parts):
        return None
    return [(name, int(number) if number.isdigit() else None) for name, _, number in parts]


def path(question: Question, goal: CodecVersion, names: Sequence[Named] | None, offers: Callable[[], Sequence[Offer]]) -> list[Step] | None:  # fmt: skip
    """Return the steps that lead to a version: the named rewrites in turn.

    Without named rewrites, every offered rewrite is tried alone if the kernel is broken.

    Args:
        question: the question.
        goal: the version to reach.
        names: the rewrites to apply, in order.
        offers: returns the applicable rewrites; called only if no rewrite is named.

    Returns:
        The steps; None if no steps lead to the version.

    Raises:
        NotEncodable: the text does not contain the kernel, or no contract is available for it.
    """
    tries = [names] if names else [[(name, None)] for name, _ in offers()] if question.broken else []
    request, left = assumed(question) if tries else None, iter(range(MOST_TRIED))
    found = (_path(request, goal, one, left) for one in tries if request is not None)
    return next((steps for steps in found if steps is not None), None)


def _path(
    request: SuggestRequest, goal: CodecVersion, names: Sequence[Named], left: Iterator[int]
) -> list[Step] | None:
    name, wanted = names[0]
    first, stop = (0, MOST_VARIANTS) if wanted is None else (wanted, wanted + 1)
    for number, candidate in enumerate(islice(REWRITES[name].candidates(request), first, stop), first):
        if next(left, None) is None:
            return None
        if len(names) == 1:
            if (candidate.kernel.unit.text, launch_of(candidate.contract)) == (goal.text, goal.launch):
                return [(name, number)]
            continue
        rest = _path(after(request, candidate), goal, names[1:], left)
        if rest is not None:
            return [(name, number), *rest]
    return None
