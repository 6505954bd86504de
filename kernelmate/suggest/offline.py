"""Suggesters without a model: recipes for metrics, repairs for wrong kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.composition import Composition
from kernelmate.suggest.repairing import RepairSequences
from kernelmate.suggest.turns import Steps, candidates_of


@dataclass(slots=True)
class Offline:
    """Suggester of recipes, or of repairs if the objective is a correct kernel.

    Attributes:
        most: largest number of candidates; None for no limit.
        notes: notices for the user.
    """

    most: int | None = None
    notes: list[str] = field(default_factory=list)
    name: str = "recipes"

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, each already judged; ends when the request is stopped."""
        yield from candidates_of(self.steps(request))

    def steps(self, request: SuggestRequest) -> Steps:
        """Yields the candidates of `propose`, with pauses of the recipes."""
        if request.objective.metric != "correct":
            yield from Composition(most=self.most).steps(request)
            return
        mending = RepairSequences(most=self.most)
        yield from mending.propose(request)
        self.notes += mending.notes
