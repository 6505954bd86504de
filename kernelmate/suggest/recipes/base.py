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
    """A changed kernel, the contract that applies to it, and a sentence with the reason.

    `caution`, if given, is the reason that it is never accepted automatically.

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
        claims: what the reasons of its rewrites say about figures.
        rewrites: yields the changed kernels for a request; none if the recipe cannot analyse the kernel or does not apply.
    """

    name: str
    metrics: tuple[MetricName, ...]
    costs: tuple[MetricName, ...]
    rewrites: Callable[[SuggestRequest], Iterator[Rewrite]]
    claims: tuple[Claim, ...] = field(default=(), kw_only=True)

    def candidates(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields this recipe's candidates; a rewrite that cannot be written, or an expression nested too deep, gives none.

        If there are none and the kernel writes its block's length as a number, the recipe is applied to the kernel with
        `blockDim` in place of the number.
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
    """Returns a changed kernel with its launch changed too, in its contract and wherever its file launches it.

    Raises:
        KernelmateError: the launch is illegal at a listed size, or one in the file cannot follow.
    """
    old = request.contract
    new = replace(old, grid=grid or old.grid, block=block or old.block, shared=old.shared if shared is None else shared)
    changed = change_launch(kernel, grid=new.grid, block=new.block, shared=new.shared, contract=old)
    return changed, new


def covered(side: str) -> tuple[str, str] | None:
    """Returns the length that a grid side covers and the share of a block: `n` and `block` of `cdiv(n, block)`, or None.

    `(n + block - 1) // block` and `(n + 255) // 256` say the same.
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
    """True if the text is one argument: its parentheses are balanced, and no comma is outside of them."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or (letter == "," and depth == 0):
            return False
    return depth == 0
