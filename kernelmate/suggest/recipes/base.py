"""What a recipe is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Kernel, MetricName
from kernelmate.source import change_launch
from kernelmate.suggest.base import SuggestRequest


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One changed kernel, the contract in force for it, and one sentence why.

    `caution`, where given, is why it is never accepted by itself.
    """

    kernel: Kernel
    contract: Contract
    why: str
    caution: str | None = None


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
                    yield Candidate(
                        f"recipe:{self.name}", rewrite.why, rewrite.kernel, rewrite.contract, caution=rewrite.caution
                    )
        except (KernelmateError, RecursionError):
            return


def relaunch(
    request: SuggestRequest,
    kernel: Kernel,
    *,
    grid: tuple[str, ...] | None = None,
    block: tuple[str, ...] | None = None,
    shared: str | None = None,
) -> tuple[Kernel, Contract]:
    """A changed kernel with its launch changed too, in its contract and wherever its file launches it.

    Raises:
        KernelmateError: the launch is illegal at a listed size, or one in the file cannot follow.
    """
    old = request.contract
    new = replace(old, grid=grid or old.grid, block=block or old.block, shared=old.shared if shared is None else shared)
    changed = change_launch(kernel, grid=new.grid, block=new.block, shared=new.shared, contract=old)
    return changed, new
