"""Candidates for Triton kernels: rewrites of the text, one function each, and other values of constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Judged, Kernel, MetricName
from kernelmate.source.triton_contract import values_of
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.triton import memory, products, rows, settings
from kernelmate.suggest.triton.program import TritonProgram, TritonRewrite


@dataclass(frozen=True, slots=True)
class TritonRecipe:
    """A rewrite of a Triton kernel's text.

    Attributes:
        name: in kebab case, part of a candidate's author.
        metrics: metrics that it can improve; `correct` for a repair.
        rewrites: yields the rewrites of a kernel; none if the recipe does not apply.
    """

    name: str
    metrics: frozenset[MetricName]
    rewrites: Callable[[TritonProgram], Iterator[TritonRewrite]]


ALL = (
    TritonRecipe("one-pass", frozenset({"time"}), rows.one_pass),
    TritonRecipe("tile-of-rows", frozenset({"time"}), rows.tile_of_rows),
    TritonRecipe("resident-programs", frozenset({"time"}), rows.rows_of_resident_programs),
    TritonRecipe("drop-masks", frozenset({"time", "registers"}), memory.unneeded_masks),
    TritonRecipe("wide-loads", frozenset({"time", "registers"}), memory.wide_loads),
    TritonRecipe("group-order", frozenset({"time"}), products.grouped_order),
    TritonRecipe("evict-policy", frozenset({"time"}), memory.eviction_policies),
    TritonRecipe("tf32-products", frozenset({"time"}), products.faster_precision),
    TritonRecipe("exact-products", frozenset({"accuracy", "correct"}), products.exact_products),
    TritonRecipe("float32-sums", frozenset({"accuracy", "correct"}), products.wider_sums),
    TritonRecipe("neutral-elements", frozenset({"correct"}), memory.neutral_elements),
)
"""Every rewrite, the most promising first."""

ROUNDS = 3
"""Steps of a search: the kernel, then the best version so far, changed again."""

GAIN = 1.05
"""Least predicted speedup of an undecided version that is changed again."""


@dataclass(slots=True)
class TritonRecipes:
    """Suggester of rewrites and of other constants for Triton kernels.

    Attributes:
        notes: reasons that nothing was proposed, one line each.
    """

    notes: list[str] = field(default_factory=list)
    name: str = "triton"

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields changes of the kernel, then of the best version that they gave, up to `ROUNDS` steps."""
        base = Candidate("", "", request.kernel, request.contract)
        proposed = False
        for _ in range(ROUNDS):
            seen: set[str] = set()
            for candidate in _changed(request, base):
                if request.stop():
                    return
                if candidate.kernel.unit.text not in seen:
                    seen.add(candidate.kernel.unit.text)
                    proposed = True
                    yield candidate
            best = next(iter(request.versions()), None)
            if best is None or best.candidate.kernel.unit.text not in seen or not _is_better(best):
                break
            base = best.candidate
        if not proposed:
            self.notes.append("No rewrite of Triton kernels that helps here applies to this one.")


def _is_better(judged: Judged) -> bool:
    """Returns True for a version that is accepted or promising, or undecided with a predicted gain."""
    verdict = judged.verdict
    faster = verdict.speedup is not None and verdict.speedup.median >= GAIN
    return verdict.worth_taking or (verdict.accepted is None and verdict.correct is not False and faster)


def _changed(request: SuggestRequest, base: Candidate) -> Iterator[Candidate]:
    """Yields each change of a version for the objective, rewrites first."""
    done = frozenset(re.findall(r"[\w-]+", base.author))
    metric = request.objective.metric
    for recipe in ALL:
        if metric in recipe.metrics and recipe.name not in done:
            yield from _rewritten(request, recipe, base)
    if metric in settings.METRICS:
        values = values_of(base.contract)
        for changes in settings.setting_changes(base.kernel, values):
            if done & set(changes):
                continue
            made = settings.with_values(base.kernel, values, changes)
            label = ",".join(f"{name}={value}" for name, value in changes.items())
            if made is not None:
                yield _candidate(base, label, settings.change_reason(values, changes), *made)


def _rewritten(request: SuggestRequest, recipe: TritonRecipe, base: Candidate) -> Iterator[Candidate]:
    try:
        occupancy = request.verdict.occupancy
        resident = None if occupancy is None else occupancy.blocks_per_sm * request.target.sms
        program = TritonProgram(base.kernel, base.contract, request.target, resident)
        for rewrite in recipe.rewrites(program):
            made = program.applied(rewrite)
            if made is not None and made[0].unit.text != base.kernel.unit.text:
                yield _candidate(base, recipe.name, rewrite.why, *made)
    except (KernelmateError, RecursionError):
        return


def _candidate(base: Candidate, name: str, why: str, kernel: Kernel, contract: Contract) -> Candidate:
    """Returns a candidate whose author and reason include those of the version that it was made from."""
    before = base.author.partition(":")[2]
    rewrites = [*before.split("+"), name] if before else [name]
    prefix = "recipe" if any("=" not in one for one in rewrites) else "triton"
    reason = f"{base.why} Then: {why}" if before else why
    return Candidate(f"{prefix}:{'+'.join(rewrites)}", reason[:1].upper() + reason[1:] + ".", kernel, contract)
