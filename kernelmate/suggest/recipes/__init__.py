"""Recipes: rewrites of the syntax tree, one per file, each with where it applies and why. They need no model."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import float_literals, launch, merge_shared, pad_shared, restrict, warp_reduce
from kernelmate.suggest.recipes.base import Recipe, Rewrite

ALL: tuple[Recipe, ...] = (
    float_literals.RECIPE,
    pad_shared.RECIPE,
    warp_reduce.RECIPE,
    merge_shared.RECIPE,
    restrict.RECIPE,
    launch.RECIPE,
)
"""Every built-in recipe, in the order in which they are offered: what changes least and helps most first."""

__all__ = ["ALL", "Recipe", "Recipes", "Rewrite"]


class Recipes:
    """Offers every recipe that can improve what was asked for, in their order, each candidate once."""

    name = "recipes"

    def __init__(self, recipes: tuple[Recipe, ...] = ALL) -> None:
        self._recipes = recipes

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Candidates, the likeliest first; ends early once the request says stop."""
        seen: set[tuple[str, str]] = set()
        for recipe in self._recipes:
            if request.objective.metric not in recipe.metrics:
                continue
            for candidate in recipe.candidates(request):
                if request.stop():
                    return
                key = (candidate.kernel.unit.text, repr(candidate.contract))
                if key not in seen:
                    seen.add(key)
                    yield candidate
