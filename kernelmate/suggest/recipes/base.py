"""What a recipe is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Kernel, MetricName
from kernelmate.suggest.base import SuggestRequest


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One changed kernel, the contract in force for it, and one sentence why."""

    kernel: Kernel
    contract: Contract
    why: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A rewrite of the syntax tree with a test of where it applies.

    Attributes:
        name: in kebab case, part of a candidate's author.
        metrics: what it can improve, the likeliest first.
        costs: what it may make worse.
        rewrites: the changed kernels; none where the recipe does not apply or is not sure.
    """

    name: str
    metrics: tuple[MetricName, ...]
    costs: tuple[MetricName, ...]
    rewrites: Callable[[SuggestRequest], Iterator[Rewrite]]

    def candidates(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Candidates of this recipe alone; a rewrite that cannot be written, or an expression nested too deep, gives none."""
        try:
            for rewrite in self.rewrites(request):
                changed = rewrite.kernel.unit.text != request.kernel.unit.text or rewrite.contract != request.contract
                if changed:
                    yield Candidate(f"recipe:{self.name}", rewrite.why, rewrite.kernel, rewrite.contract)
        except (KernelmateError, RecursionError):
            return
