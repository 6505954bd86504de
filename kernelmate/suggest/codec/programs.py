"""Recipes as steps of an answer: which one, and which of its variants, each on the result of the former."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import Question, Unreadable, Version
from kernelmate.suggest.codec.chat import request_of
from kernelmate.suggest.codec.requests import launch_of
from kernelmate.suggest.recipes import ALL

MOST_STEPS = 5
MOST_VARIANTS = 32
"""Of one recipe: what it can be told apart by."""
MOST_TRIED = 400
"""Versions that are looked at for the steps that lead to one."""

RECIPES = {recipe.name: recipe for recipe in ALL}

Step = tuple[str, int]
"""A recipe's name and the number of a variant, from 0."""

_AUTHOR = re.compile(r"\brecipe:([a-z0-9+-]+)")


def assumed(question: Question) -> SuggestRequest:
    """A request for recipes; where only code for the GPU would show that there is double arithmetic, it is taken for granted.

    Raises:
        Untellable: the text does not hold the kernel, or no contract can be had for it.
    """
    request = request_of(question)
    return replace(request, compiled=replace(request.compiled, ptx=".f64"))


def taken(request: SuggestRequest, steps: Sequence[Step]) -> tuple[SuggestRequest, list[str]]:
    """The request after steps, and why each was taken.

    Raises:
        Unreadable: a recipe is none, has no such variant there, or there are too many steps.
    """
    whys: list[str] = []
    if len(steps) > MOST_STEPS:
        raise Unreadable(f"The answer takes more than {MOST_STEPS} steps.")
    for name, number in steps:
        if name not in RECIPES:
            raise Unreadable(f"There is no recipe {name}.")
        candidate = next(islice(RECIPES[name].candidates(request), number, None), None)
        if candidate is None:
            raise Unreadable(f"The recipe {name} has no variant {number} here.")
        request = after(request, candidate)
        whys.append(candidate.why)
    return request, whys


def after(request: SuggestRequest, candidate: Candidate) -> SuggestRequest:
    """The request with a candidate in the place of its kernel."""
    return replace(request, kernel=candidate.kernel, contract=candidate.contract)


def named_steps(analysis: Sequence[str]) -> list[str] | None:
    """The recipes of an author such as `recipe:coalesce+unroll` among sentences; None where none is named."""
    found = _AUTHOR.search(" ".join(analysis))
    names = found[1].split("+") if found is not None else []
    return names if names and all(name in RECIPES for name in names) else None


def path(request: SuggestRequest, goal: Version, names: Sequence[str] | None) -> list[Step] | None:
    """The steps that lead to a version: the named recipes in turn, or else any one; None where they are not found."""
    left = iter(range(MOST_TRIED))
    for first in [names] if names else [[name] for name in RECIPES]:
        found = _path(request, goal, first, left)
        if found is not None:
            return found
    return None


def _path(request: SuggestRequest, goal: Version, names: Sequence[str], left: Iterator[int]) -> list[Step] | None:
    for number, candidate in enumerate(islice(RECIPES[names[0]].candidates(request), MOST_VARIANTS)):
        if next(left, None) is None:
            return None
        if len(names) == 1:
            if (candidate.kernel.unit.text, launch_of(candidate.contract)) == (goal.text, goal.launch):
                return [(names[0], number)]
            continue
        rest = _path(after(request, candidate), goal, names[1:], left)
        if rest is not None:
            return [(names[0], number), *rest]
    return None
