"""Interface of recipes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Claim, Contract, Kernel, MetricName
from kernelmate.source import change_launch
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.literal_blocks import names_length, with_block_dim
from kernelmate.suggest.recipes.techniques import ended_by
from kernelmate.suggest.recipes.tidy import tidied


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A changed kernel, its contract, and the reason as a sentence.

    `caution`, if given, is the reason that the candidate is never accepted automatically.
    """

    kernel: Kernel
    contract: Contract
    why: str
    caution: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A rewrite of the syntax tree, with the conditions for applying it.

    Attributes:
        name: in kebab case, part of a candidate's author.
        metrics: metrics that it can improve, the most likely first.
        costs: metrics that it may make worse.
        claims: statements about figures in the reasons of its rewrites.
        rewrites: yields the changed kernels for a request; none if the recipe cannot analyse the kernel or does not apply.
    """

    name: str
    metrics: tuple[MetricName, ...]
    costs: tuple[MetricName, ...]
    rewrites: Callable[[SuggestRequest], Iterator[Rewrite]]
    claims: tuple[Claim, ...] = field(default=(), kw_only=True)

    def candidates(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields this recipe's candidates; a rewrite that cannot be written, or too deep an expression, gives none.

        If there are none and the kernel has its block size as a literal, the recipe is applied to the kernel with
        `blockDim` in place of the literal.
        """
        found = None
        for found in self._candidates(request):
            yield found
        other = with_block_dim(request) if found is None else None
        if other is not None:
            fixed = names_length(other)
            yield from (
                one for one in self._candidates(other) if not fixed or one.contract.block == request.contract.block
            )

    def _candidates(self, request: SuggestRequest) -> Iterator[Candidate]:
        try:
            for rewrite in self.rewrites(request):
                if rewrite.kernel.unit.text == request.kernel.unit.text and rewrite.contract == request.contract:
                    continue
                kernel = tidied(request.kernel, rewrite.kernel, ended_by(self.name, request.contract, rewrite.contract))
                author = f"recipe:{self.name}"
                yield Candidate(
                    author, rewrite.why, kernel, rewrite.contract, caution=rewrite.caution, claims=self.claims
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
    """Returns a kernel and its contract with a changed launch, in the contract and in every launch of the file.

    Raises:
        KernelmateError: the launch is illegal at a listed size, or a launch in the file cannot be changed.
    """
    old = request.contract
    new = replace(old, grid=grid or old.grid, block=block or old.block, shared=old.shared if shared is None else shared)
    changed = change_launch(kernel, grid=new.grid, block=new.block, shared=new.shared, contract=old)
    return changed, new


def covered(side: str) -> tuple[str, str] | None:
    """Returns the two arguments of a grid side that rounds up: `n` and `block` of `cdiv(n, block)`; None for others.

    `(n + block - 1) // block` and `(n + 255) // 256` are recognised too.
    """
    text = side.strip()
    match = re.fullmatch(r"cdiv\((?P<work>.+),\s*(?P<length>[\w.]+)\s*\)", text) or re.fullmatch(
        r"\((?P<work>.+?)\s*\+\s*(?P<less>\w+(?:\s*-\s*1)?)\s*\)\s*//\s*(?P<length>\w+)", text
    )
    if match is None or not _one_argument(match["work"]):
        return None
    length, less = match["length"], match.groupdict().get("less")
    rounds = {f"{length}-1"} | ({str(int(length) - 1)} if length.isdigit() else set())
    if less is not None and "".join(less.split()) not in rounds:
        return None
    return match["work"].strip(), length


def _one_argument(text: str) -> bool:
    """Returns True if the text is one argument: its parentheses are balanced, and no comma is outside of them."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or (letter == "," and depth == 0):
            return False
    return depth == 0
