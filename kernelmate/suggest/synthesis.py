"""Suggester of new kernels written from the contract's reference, which the worker traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from kernelmate.decide.constraints import launch_broken, suits
from kernelmate.errors import KernelmateError, ReferenceFailed
from kernelmate.records import Candidate, Contract, Kernel, MetricName
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.comments import without_stale_comments
from kernelmate.suggest.recipes.techniques import REWRITTEN
from kernelmate.suggest.recipes.tidy import laid_out
from kernelmate.suggest.replacement import (
    changed_values,
    with_freed_names,
    with_helper_comments,
    with_kept_comments,
    with_own_qualifiers,
    without_own_helpers,
    without_unused_headers,
    without_unused_numbers,
)
from kernelmate.synthesis.draft import fusion_draft, fusion_words
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import WrittenKernel
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.write import kernels_for

MOST, MOST_MEASURED = 3, 8
"""Largest number of candidates of one search with predicted and with measured times.

Predictions distinguish schedules with different mappings, measurements also different sizes of one schedule.
"""

METRICS: frozenset[MetricName] = frozenset({"time", "global_bytes", "shared_bytes", "local_bytes"})
"""Metrics that follow from the structure of a kernel."""

FROM_REFERENCE = "Written from the reference"
"""Beginning of the reason of a kernel that is written from a graph."""

WITHOUT = "No kernel was written anew: the contract names no reference. kernelmate lift may read one from the kernel."


@dataclass(slots=True)
class Synthesis:
    """Suggester of kernels synthesised from a Python reference, for metrics that follow from a kernel's structure.

    Attributes:
        notes: reasons that no kernel was written, one line each.
        most: largest number of candidates of one search; None for `MOST`, or `MOST_MEASURED` if times are measured.
    """

    notes: list[str] = field(default_factory=list)
    name: str = "synthesis"
    most: int | None = None

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, the most promising first; none if the reference or the kernel does not allow it."""
        contract = request.contract
        python = contract.reference_kind in ("function", "expression")
        asked = request.objective
        unmeasured = asked.keep and not asked.constraints
        if contract.reference is None and not contract.inferred and asked.metric in METRICS:
            self.notes.append(WITHOUT)
        if request.trace is None or not python or asked.metric not in METRICS or unmeasured:
            return
        try:
            text, note = request.trace()
            graph = Graph.of(text)
            self.notes += [note] if note else []
            bare, contract = _room(request)
            measured = request.verdict.backend == "cuda"
            most = self.most or (MOST_MEASURED if measured else MOST)
            major, minor = request.target.capability
            texts = [one for one in kernels_for(graph, bare, contract) if one.capability <= 10 * major + minor]
            first = [one for one in texts if not one.another]
            texts = first if first and most <= MOST else texts
            wanted = self._wanted(request, texts)
            candidates: Iterator[Candidate] = chain.from_iterable(
                self._placed(request, bare, contract, one) for one in wanted
            )
            if note:
                candidates = (
                    replace(one, why=one.why.replace(FROM_REFERENCE, "Written from the kernel", 1))
                    for one in candidates
                )
            fitting = (one for one in candidates if not launch_broken(asked, one.contract, request.contract))
            yield from (_announced if asked.metric == "time" else _promising)(request, islice(fitting, most))
        except Refused as reason:
            self.notes.append(f"No kernel was written from the reference: {reason}.")
        except ReferenceFailed as error:
            self.notes.append(f"No kernel was written from the reference. {error.message}")

    def _wanted(self, request: SuggestRequest, found: list[WrittenKernel]) -> list[WrittenKernel]:
        """Returns the kernels that the prompt allows, the preferred ones first."""
        scores = [suits(request.objective, f"{self.name}:{one.schedule}") for one in found]
        ranked = sorted(zip(scores, found, strict=True), key=lambda pair: -pair[0])
        return [one for score, one in ranked if score >= 0]

    def _placed(
        self, request: SuggestRequest, bare: Kernel, contract: Contract, written: WrittenKernel
    ) -> Iterator[Candidate]:
        """Yields the candidate inserted into `bare`, the user's file without its kernel.

        It yields nothing if a launch in the file cannot be adapted.
        """
        try:
            kernel, contract = placed(bare, contract, written)
        except KernelmateError as error:
            self.notes.append(f"The schedule {written.schedule} was left out: {error.message}")
            return
        if request.contract.stages:
            why = f"{written.why} {fusion_words(request.verdict.stages or ())}"
            yield Candidate(f"{self.name}:{written.schedule}", why, kernel, contract)
            return
        kernel = without_unused_headers(request.kernel, without_unused_numbers(request.kernel, kernel))
        kernel = with_own_qualifiers(request.kernel, with_freed_names(request.kernel, kernel))
        kernel = without_stale_comments(request.kernel, kernel, REWRITTEN, written.method)
        kernel = with_helper_comments(request.kernel, with_kept_comments(request.kernel, kernel))
        kernel = laid_out(request.kernel, kernel)
        why = written.why + changed_values(request.kernel, kernel, request.compiled.ptx)
        yield Candidate(f"{self.name}:{written.schedule}", why, kernel, contract)


def _room(request: SuggestRequest) -> tuple[Kernel, Contract]:
    """Returns the kernel that a new one replaces, without its helpers, and its contract; for a pipeline, a new empty kernel."""
    if request.contract.stages:
        return fusion_draft(request.kernel, request.contract)
    return without_own_helpers(request.kernel), request.contract


def _announced(request: SuggestRequest, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yields each candidate after announcing the next one to `request.expect`, until the search stops."""
    waiting: Candidate | None = None
    for candidate in candidates:
        if request.expect is not None:
            request.expect(candidate, full=True)
        if waiting is not None:
            if request.stop():
                return
            yield waiting
        waiting = candidate
    if waiting is not None and not request.stop():
        yield waiting


def _promising(request: SuggestRequest, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yields candidates that a quick evaluation finds better, until the search stops."""
    for candidate in candidates:
        if request.stop():
            return
        if request.quick_evaluation is None or request.quick_evaluation(candidate).verdict.worth_taking:
            yield candidate
