"""The search for one prompt: suggesters propose candidates, the context judges them, and the best come first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kernelmate.decide.constraints import holds_already, only_structure, suits
from kernelmate.decide.ranking import best_first, rank
from kernelmate.errors import KernelmateError
from kernelmate.records import (
    Candidate,
    Computation,
    Judged,
    MetricName,
    Objective,
    Optimization,
    SearchState,
    Verdict,
)
from kernelmate.report.words import stopped_words
from kernelmate.session.budget import Step, TimeBudget
from kernelmate.session.candidates import (
    OWN,
    TRUSTED,
    content_key,
    is_measured,
    is_wrong,
    judged_by,
    other_seed,
    rejection_reason,
    shared_verdict,
    turned_away,
    with_caution,
    with_launches_elsewhere,
)
from kernelmate.session.judging import HANGS, JudgedInstance, JudgingContext
from kernelmate.session.prefetch import Prefetcher
from kernelmate.session.preparing import PreparedVersion
from kernelmate.session.search_notes import budget_note, not_judged_notes, not_worth_changing
from kernelmate.session.tracing import graph_text
from kernelmate.source.other_files import LaunchingFile, launching_files
from kernelmate.suggest.base import Suggester, SuggestRequest
from kernelmate.suggest.replies import borne_out
from kernelmate.suggest.turns import ask_in_turns
from kernelmate.worker.base import no_verdict_within

MOST_TIMED_AGAIN = 3
"""Maximum number of versions that are timed again if the best one loses its rank."""

SEEDED: frozenset[MetricName] = frozenset({"accuracy", "global_bytes"})
"""Metrics that depend on the inputs."""

NO_NATIVE_CODE = re.compile(r"\b(?:w?mma|ldmatrix|wgmma)\.")
"""Instructions in PTX that the emulator executes by NumPy."""

OnJudged = Callable[[Judged], None]
OnTrying = Callable[[SearchState], None]

THE_BASELINE = ""
"""Content key of the kernel itself."""

_Code: TypeAlias = "tuple[str | None, ...]"
"""Key of versions that a GPU cannot distinguish: the binaries of their instances, and their launch."""


@dataclass(slots=True)
class Search:
    """The state of one search.

    Attributes:
        context: judges versions.
        baselines: the baseline's trials, one per instance; figures are compared with the first.
        max_candidates: maximum of candidates to judge.
        budget: time budget.
        on_judged: called with each judged version.
        stopped: returns True to end the search.
        earlier: versions of earlier searches for this kernel, best first.
        on_trying: called before each version is tried.
        prefetcher: compiles versions ahead, and may have begun some; None for a new one.
        against: computations of libraries that the best version is timed beside.
    """

    context: JudgingContext
    baselines: tuple[JudgedInstance, ...]
    objective: Objective
    max_candidates: int
    budget: TimeBudget
    on_judged: OnJudged | None
    stopped: Callable[[], bool]
    earlier: Callable[[], Sequence[Judged]] = tuple
    on_trying: OnTrying | None = None
    prefetcher: Prefetcher | None = None
    against: tuple[Computation, ...] = ()
    notes: list[str] = field(default_factory=list)
    _judged: dict[str, Judged] = field(default_factory=dict)
    _evaluated_quickly: dict[str, Judged] = field(default_factory=dict)
    _by_code: dict[_Code, str] = field(default_factory=dict)
    _twins: dict[str, str] = field(default_factory=dict)
    _cut: list[str] = field(default_factory=list)
    _limit_s: float | None = None
    _failure: KernelmateError | None = None
    _launched_in: tuple[LaunchingFile, ...] | None = None

    def __post_init__(self) -> None:
        """Registers the kernel itself by its code."""
        theirs = Candidate("", "", self.context.kernel, self.context.contract)
        for trials in (self.baselines, self.baselines[:1]):
            self._by_code[self._code(theirs, [trial.prepared for trial in trials])] = THE_BASELINE

    @property
    def baseline(self) -> Verdict:
        """The baseline's verdict at its first instance."""
        return self.baselines[0].verdict

    def run(self, suggesters: Iterable[Suggester]) -> Optimization:
        """Asks the suggesters in turn, judge their candidates, and rank all of them.

        Raises:
            InputError: the reference cannot be used.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        why_not = not_worth_changing(self.baseline, self.objective)
        if why_not is None and holds_already(
            self.objective, self.baseline, self.baselines[0].prepared.compiled, self.context.contract
        ):
            words = ", ".join(one.words for one in self.objective.constraints)
            why_not = f"The kernel already meets what was asked for ({words}), so nothing was tried."
        if why_not is not None:
            self._ahead().close()
            return Optimization(self.objective, self.baseline, (), None, (why_not,))
        request = SuggestRequest(
            kernel=self.context.kernel,
            contract=self.context.contract,
            compiled=self.baselines[0].prepared.compiled,
            verdict=self.baseline,
            objective=self.objective,
            target=self.context.target,
            judge=self.judge,
            versions=self.versions,
            stop=self.over,
            earlier=self.earlier,
            quick_evaluation=self.quick_evaluation,
            expect=self.expect,
            trace=lambda: graph_text(self.context, self.baselines[0].prepared),
        )
        try:
            asked = ask_in_turns(suggesters, request, self.judge)
            self.notes += asked.notes
            if self._failure is not None:
                raise self._failure
            self._judge_promising()
        finally:
            self._ahead().close()
        self._note_the_end(asked.unfinished)
        self._time_best_again()
        ranked = self._answering(self.versions())
        best = 0 if ranked and ranked[0].verdict.worth_taking else None
        return Optimization(self.objective, self.baseline, tuple(ranked), best, tuple(self.notes))

    def _answering(self, ranked: Sequence[Judged]) -> Sequence[Judged]:
        """Returns the versions that answer the prompt: if it names only a structure, those that have it.

        A model's version may have it, too. If no version has it, a note says so.
        """
        if not only_structure(self.objective):
            return ranked
        return [
            one
            for one in ranked
            if suits(self.objective, one.candidate.author) > 0 or not one.candidate.author.startswith(TRUSTED)
        ]

    def over(self) -> bool:
        """Returns True if the user has stopped the search, or one of its limits is reached."""
        return self.stopped() or self._failure is not None or self._enough() or self._late()

    def versions(self) -> Sequence[Judged]:
        """Returns everything judged so far, best first: accepted, promising, undecided, rejected."""
        return best_first(tuple(self._judged.values()), self.objective, self.context.kernel, self.context.contract)

    def judge(self, candidate: Candidate) -> Judged:
        """Returns a candidate's verdict over all instances.

        A version judged before, or equal to the baseline, costs nothing.

        A candidate with the binary and launch of another version gets that version's verdict.
        """
        key = content_key(candidate.kernel, candidate.contract)
        if key == content_key(self.context.kernel, self.context.contract):
            verdict = replace(self.baseline, accepted=False, reasons=("the same as the baseline",))
            return Judged(candidate, verdict)
        if key not in self._judged:
            verdict = self._verdict(key, candidate)
            if self._is_cut(candidate, verdict):
                return Judged(candidate, replace(verdict, accepted=None))
            self._keep(key, self._with_launches(candidate, verdict))
        return self._judged[key]

    def quick_evaluation(self, candidate: Candidate) -> Judged:
        """Evaluates a built-in rewrite quickly; a candidate found wrong is rejected at once."""
        key = content_key(candidate.kernel, candidate.contract)
        known = self._judged.get(key) or self._evaluated_quickly.get(key)
        if known is not None or not candidate.author.startswith(TRUSTED):
            return known or self.judge(candidate)
        self._tell(candidate, quick=True)
        try:
            seen = Judged(candidate, self._quick_evaluation(key, candidate))
        except KernelmateError as error:
            self._failure = error
            raise
        if self._is_cut(candidate, seen.verdict):
            return replace(seen, verdict=replace(seen.verdict, accepted=None))
        if is_wrong(seen.verdict):
            self._keep(key, seen)
        else:
            self._evaluated_quickly[key] = seen
        return seen

    def expect(self, candidate: Candidate, *, full: bool = False) -> None:
        """Starts work for the evaluation of a built-in rewrite; does nothing if it was already evaluated.

        Args:
            candidate: the rewrite.
            full: a full verdict will follow, and no quick evaluation.
        """
        key = content_key(candidate.kernel, candidate.contract)
        if key not in self._judged and key not in self._evaluated_quickly and candidate.author.startswith(TRUSTED):
            self._ahead().expect(key, candidate.kernel, candidate.contract, full=full)

    def _ahead(self) -> Prefetcher:
        self.prefetcher = self.prefetcher or Prefetcher(self.context, self.baselines[0], self.objective)
        return self.prefetcher

    def _quick_evaluation(self, key: str, candidate: Candidate) -> Verdict:
        prepared = self._prepared(key, candidate, self.baselines[:1])
        code = self._code(candidate, prepared)
        known = self._known_by(key, code, {**self._evaluated_quickly, **self._judged})
        if known is not None:
            return known
        self._by_code.setdefault(code, key)
        context = self._limited(self.context)
        with self.budget.spent_on("quick"):
            trial = context.quick_evaluation(prepared[0], self.baselines[0], self.objective)
        return with_caution(candidate, trial.verdict)

    def _prepared(
        self, key: str, candidate: Candidate, baselines: Sequence[JudgedInstance]
    ) -> tuple[PreparedVersion, ...]:
        """Returns the candidate compiled for the template instance of each baseline."""
        kernel, contract, ahead = candidate.kernel, candidate.contract, self._ahead()
        instances = [trial.prepared.compiled.instance for trial in baselines]
        if len(instances) > 1:
            ahead.expect(key, kernel, contract, *instances)
        return tuple(ahead.prepared(key, kernel, contract, instance) for instance in instances)

    def _code(self, candidate: Candidate, prepared: Sequence[PreparedVersion]) -> _Code:
        contract = candidate.contract
        launch = (*contract.grid, "|", *contract.block, "|", contract.shared, *contract.require)
        return (*(one.compiled.binary for one in prepared), *launch, candidate.caution)

    def _known_by(self, key: str, code: _Code, known: Mapping[str, Judged]) -> Verdict | None:
        """Returns the verdict on a version of the same binary and launch.

        The result is None if there is no such version, or if the text itself matters.
        """
        if code[0] is None or self.objective.keep:
            return None
        other = self._by_code.get(code)
        if other == THE_BASELINE:
            self._twins[key] = THE_BASELINE
            return shared_verdict(replace(self.baseline, accepted=False, reasons=()), "the baseline")
        if other is None or other == key or other not in known:
            return None
        self._twins[key] = other
        return shared_verdict(known[other].verdict, known[other].candidate.author)

    def _tell(self, candidate: Candidate, *, quick: bool) -> None:
        if self.on_trying is None:
            return
        best = next(iter(self.versions()), None)
        if best is not None and not best.verdict.worth_taking:
            best = None
        tried = len((self._judged.keys() | self._evaluated_quickly.keys()) - self._twins.keys())
        elapsed_s, budget_s = self.budget.elapsed_s(), self.budget.limit_s
        self.on_trying(SearchState(candidate.author, quick, tried, elapsed_s, budget_s, best))

    def _keep(self, key: str, judged: Judged) -> None:
        judged = replace(judged, candidate=borne_out(judged.candidate, self.baseline, judged.verdict))
        self._judged[key] = judged
        if self.on_judged is not None:
            self.on_judged(judged)

    def _verdict(self, key: str, candidate: Candidate) -> Verdict:
        self._tell(candidate, quick=False)
        try:
            finding = rejection_reason(self.context, candidate)
            if finding is not None:
                return turned_away(self.baseline, finding)
            prepared = self._prepared(key, candidate, self.baselines)
            code = self._code(candidate, prepared)
            known = self._known_by(key, code, self._judged)
            if known is not None:
                return known
            self._by_code[code] = key
            context = self._limited(self._context_of(candidate), *self._final())
            with self.budget.spent_on(_step_of(prepared)):
                return judged_by(context, candidate, self.baselines, self.objective, prepared)
        except KernelmateError as error:
            # These errors are not the candidate's fault, and a suggester that swallows them must not hide them.
            self._failure = error
            raise

    def _with_launches(self, candidate: Candidate, verdict: Verdict) -> Judged:
        kernel, contract = self.context.kernel, self.context.contract
        if self._launched_in is None:
            self._launched_in = launching_files(kernel)
        return with_launches_elsewhere(kernel, contract, candidate, self._launched_in, verdict)

    def _context_of(self, candidate: Candidate) -> JudgingContext:
        """Returns the context of a full verdict: of built-in rewrites, only the best is judged in variants of its build."""
        own = candidate.author.startswith(OWN)
        return replace(self.context, variants=False) if own and self._final() else self.context

    def _limited(self, context: JudgingContext, *after: Step) -> JudgingContext:
        """Returns the context with a time limit for one evaluation that leaves the steps after it their time."""
        first = not self._judged and not self._evaluated_quickly
        allowed_s = self.budget.allowed_s(*after, first=first)
        self._limit_s = allowed_s
        return context if allowed_s is None else replace(context, ends_s=allowed_s)

    def _is_cut(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Returns True, and records the version, if its evaluation was ended because the search's time was over."""
        if self._limit_s is None or not verdict.findings:
            return False
        first = verdict.findings[0]
        cut = first.code in HANGS and first.message.startswith(no_verdict_within(self._limit_s))
        self._cut += [candidate.author] * cut
        return cut

    def _judge_promising(self) -> None:
        """Gives a full verdict, as long as there is time, to candidates that a quick evaluation found better than all judged ones."""
        while not (self.stopped() or self._enough()) and self.budget.fits("full", *self._final()):
            waiting = [one for key, one in self._evaluated_quickly.items() if key not in self._judged]
            best = next(iter(self.versions()), None)
            better = [
                (rank(one.verdict, self.objective), number)
                for number, one in enumerate(waiting)
                if one.verdict.worth_taking
                and (best is None or rank(one.verdict, self.objective) < rank(best.verdict, self.objective))
            ]
            fitting = (
                waiting[number].candidate for _, number in sorted(better) if self._fits(waiting[number].candidate)
            )
            candidate = next(fitting, None)
            if candidate is None:
                return
            self.judge(candidate)

    def _fits(self, candidate: Candidate) -> bool:
        """Returns True if a full verdict on a candidate is expected to end in time."""
        prepared = self._prepared(content_key(candidate.kernel, candidate.contract), candidate, self.baselines)
        return self.budget.fits(_step_of(prepared), *self._final())

    def _time_best_again(self) -> None:
        """Replaces the best version's figures by those of a fresh process, on inputs of an unused seed.

        The best of many measurements is subject to selection bias, and a process has constant effects (placement of
        code and buffers). The repeated measurement is made after the choice, so it is unbiased. The search reserves
        time for the first repetition; if the best loses its rank, the next version is timed again if the budget allows.
        """
        again: set[str] = set()
        context = replace(self.context, seed=other_seed(self.context.seed), against=self.against)
        baselines: tuple[JudgedInstance, ...] = ()
        while self._judged and len(again) < MOST_TIMED_AGAIN:
            best = self.versions()[0]
            key = content_key(best.candidate.kernel, best.candidate.contract)
            key = self._twins.get(key, key)
            if not is_measured(best.verdict) or not self._final() or not best.verdict.worth_taking or key in again:
                break
            if again and not self.budget.fits("final"):
                break
            try:
                with self.budget.spent_on("final"):
                    if context.seed != self.context.seed:
                        context.worker.renew()
                    baselines = baselines or self._baselines_again(context)
                    one = self._judged[key].candidate
                    verdict = judged_by(context, one, baselines, self.objective, self._prepared(key, one, baselines))
            except KernelmateError as error:
                # The search's results stay: a reference may fail on some inputs and not on others.
                self.notes.append(f"The best could not be judged again on other inputs: {error.message}")
                if context.seed == self.context.seed or self._context_of(best.candidate).variants:
                    break
                # Its builds are still to be judged, on the inputs of the search.
                context, baselines = replace(self.context, against=self.against), self.baselines
                continue
            again.add(key)
            self._judged[key] = self._with_launches(one, verdict)
            for twin in (twin for twin, other in self._twins.items() if other == key and twin in self._judged):
                self._judged[twin] = Judged(self._judged[twin].candidate, shared_verdict(verdict, one.author))
        if self.against and not again:
            self.notes.append("No version was timed again at the end, so none was compared with a library (--against).")
        if again and context.seed != self.context.seed:
            self.notes.append(
                "The best was judged and timed again in a fresh process, on other inputs; its figures are from there."
            )

    def _baselines_again(self, context: JudgingContext) -> tuple[JudgedInstance, ...]:
        """Returns the baseline's trials on that context's inputs, if a limit compares input-dependent metrics or there is time."""
        if SEEDED.isdisjoint(self.objective.limits) and not self.budget.fits("final", "full"):
            return self.baselines
        return replace(context, against=()).baselines()

    def _final(self) -> tuple[Step, ...]:
        """Returns the final steps of a search after the last version is tried."""
        timed = self.objective.metric == "time" and is_measured(self.baseline)
        return ("final",) if timed else ()

    def _enough(self) -> bool:
        return len(self._judged.keys() - self._twins.keys()) >= self.max_candidates

    def _late(self) -> bool:
        """Returns True if there is no time to evaluate another version, judge it and, as the best, time it again.

        At least one version is always evaluated, and judged if it promises a gain.
        """
        if not self._judged and not self._evaluated_quickly and not self._cut:
            return False
        return not self.budget.fits("quick", "full", *self._final())

    def _note_wishes(self) -> None:
        """Adds notes on requests that no proposed candidate meets."""
        tried = (*self._judged.values(), *self._evaluated_quickly.values())
        for one in self.objective.constraints:
            if not tried and one.kind not in ("block", "launch"):
                continue
            if all(any(why.startswith(f"asked for {one.words},") for why in found.verdict.reasons) for found in tried):
                self.notes.append(f"No proposed version meets: {one.words}.")
        authors = [found.candidate.author for found in tried]
        for preference in self.objective.preferences:
            if not preference.avoid and not any(re.search(preference.authors, author) for author in authors):
                self.notes.append(f"No recipe or schedule proposed for this kernel: {preference.words}.")

    def _note_the_end(self, unfinished: Sequence[str]) -> None:
        """Adds notes on what was judged, what only partly, and what was left."""
        self._note_wishes()
        passed = len(self._evaluated_quickly.keys() - self._judged.keys() - self._twins.keys())
        self.notes += not_judged_notes(passed, len(self._twins), self._cut)
        if self.stopped():
            ranked = self.versions()
            best = 0 if ranked and ranked[0].verdict.worth_taking else None
            self.notes.append(stopped_words(len(ranked), best))
        elif self._enough():
            self.notes.append(f"Ended after {self.max_candidates} candidates, the most that were allowed.")
        elif self._late() and self.budget.limit_s is not None:
            self.notes.append(budget_note(self.budget.limit_s, self.budget.elapsed_s(), unfinished))
        elif not self._judged and not self._evaluated_quickly and not self.notes:
            self.notes.append("No suggestion applies to this kernel and this objective.")


def _step_of(prepared: Sequence[PreparedVersion]) -> Step:
    """Returns `slow` for kernels that the emulator has no native code for."""
    return "slow" if any(NO_NATIVE_CODE.search(one.compiled.ptx) for one in prepared) else "full"
