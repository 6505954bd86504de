"""One prompt's search: suggesters propose, the court judges, and what is worth taking comes first."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Finding, Judged, Kernel, Objective, Optimization, Verdict
from kernelmate.session.foresight import Foresight
from kernelmate.session.judging import Court, Trial
from kernelmate.suggest.base import Suggester, SuggestRequest
from kernelmate.suggest.metrics import rank, rightness
from kernelmate.suggest.small_sizes import best_first

MOST_TIMED_AGAIN = 3
"""Versions that are timed again at most, where the best does not stay the best."""

REWRITES = "recipe:"
"""Author of what our own rewrites made."""

TRUSTED = (REWRITES, "user")
"""Authors of whom no text is screened."""

OnJudged = Callable[[Judged], None]


@dataclass(slots=True)
class Search:
    """The state of one search.

    Attributes:
        court: judges. baselines: the baseline's trials, one per instance; the first is what figures are compared with.
        max_candidates: candidates to judge at most. budget_s: seconds to search at most, None for no limit.
        stopped: True once the user wants no more.
        earlier: what earlier searches found for this kernel, best first.
    """

    court: Court
    baselines: tuple[Trial, ...]
    objective: Objective
    max_candidates: int
    budget_s: float | None
    on_judged: OnJudged | None
    stopped: Callable[[], bool]
    earlier: Callable[[], Sequence[Judged]] = tuple
    notes: list[str] = field(default_factory=list)
    _judged: dict[str, Judged] = field(default_factory=dict)
    _glimpsed: dict[str, Judged] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _failure: KernelmateError | None = None
    _foresight: Foresight | None = None

    @property
    def baseline(self) -> Verdict:
        """The baseline's verdict at its first instance."""
        return self.baselines[0].verdict

    def run(self, suggesters: Iterable[Suggester]) -> Optimization:
        """Ask each suggester in turn, judge what it proposes, and rank it all.

        Raises:
            InputError: the reference cannot be used. EnvironmentFailed: compiler or worker are not to be had.
        """
        why_not = _not_worth_changing(self.baseline, self.objective)
        if why_not is not None:
            return Optimization(self.objective, self.baseline, (), None, (why_not,))
        request = SuggestRequest(
            kernel=self.court.kernel,
            contract=self.court.contract,
            compiled=self.baselines[0].prepared.compiled,
            verdict=self.baseline,
            objective=self.objective,
            target=self.court.target,
            judge=self.judge,
            versions=self.versions,
            stop=self.over,
            earlier=self.earlier,
            glimpse=self.glimpse,
            expect=self.expect,
        )
        try:
            for suggester in suggesters:
                if self.over():
                    break
                self._ask(suggester, request)
                self.notes += getattr(suggester, "notes", ())
        finally:
            self._foreseeing().close()
        self._note_the_end()
        self._time_best_again()
        ranked = self.versions()
        best = 0 if ranked and ranked[0].verdict.worth_taking else None
        return Optimization(self.objective, self.baseline, tuple(ranked), best, tuple(self.notes))

    def over(self) -> bool:
        """The user has stopped the search, or it has used up what it was given."""
        return self.stopped() or self._failure is not None or len(self._judged) >= self.max_candidates or self._late()

    def versions(self) -> Sequence[Judged]:
        """Everything judged so far, best first: accepted, then promising, then undecided, then rejected."""
        ranked = sorted(self._judged.values(), key=lambda judged: rank(judged.verdict, self.objective))
        return best_first(ranked) if self.objective.metric == "time" else ranked

    def judge(self, candidate: Candidate) -> Judged:
        """A candidate's verdict over all instances; one that was judged before, or is the baseline, costs nothing."""
        key = content_key(candidate.kernel, candidate.contract)
        if key == content_key(self.court.kernel, self.court.contract):
            verdict = replace(self.baseline, accepted=False, reasons=("the same as the baseline",))
            return Judged(candidate, verdict)
        if key not in self._judged:
            self._keep(key, Judged(candidate, self._verdict(candidate)))
        return self._judged[key]

    def glimpse(self, candidate: Candidate) -> Judged:
        """A first look at a candidate of ours; one that is wrong already is judged by it."""
        key = content_key(candidate.kernel, candidate.contract)
        known = self._judged.get(key) or self._glimpsed.get(key)
        if known is not None or not candidate.author.startswith(TRUSTED):
            return known or self.judge(candidate)
        try:
            prepared = self._foreseeing().prepared(key, candidate.kernel, candidate.contract)
            trial = self.court.glimpse(prepared, self.baselines[0], self.objective)
        except KernelmateError as error:
            self._failure = error
            raise
        seen = Judged(candidate, _with_caution(candidate, trial.verdict))
        if _wrong(seen.verdict):
            self._keep(key, seen)
        else:
            self._glimpsed[key] = seen
        return seen

    def expect(self, candidate: Candidate) -> None:
        """Begin what a glimpse at a candidate of ours will need; nothing where there was one."""
        key = content_key(candidate.kernel, candidate.contract)
        if key not in self._judged and key not in self._glimpsed and candidate.author.startswith(TRUSTED):
            self._foreseeing().expect(key, candidate.kernel, candidate.contract)

    def _foreseeing(self) -> Foresight:
        self._foresight = self._foresight or Foresight(self.court, self.baselines[0], self.objective)
        return self._foresight

    def _keep(self, key: str, judged: Judged) -> None:
        self._judged[key] = judged
        if self.on_judged is not None:
            self.on_judged(judged)

    def _ask(self, suggester: Suggester, request: SuggestRequest) -> None:
        try:
            for candidate in suggester.propose(request):
                if self.over():
                    break
                self.judge(candidate)
        except Exception as error:  # noqa: BLE001 -- one suggester's bug must not cost the others' candidates
            self.notes.append(f"{suggester.name} failed: {type(error).__name__}: {error}")
        if self._failure is not None:
            raise self._failure

    def _verdict(self, candidate: Candidate) -> Verdict:
        try:
            return verdict_on(self.court, candidate, self.baselines, self.objective)
        except KernelmateError as error:
            # No candidate is at fault for what comes out here, and a suggester that swallows it must not hide it.
            self._failure = error
            raise

    def _time_best_again(self) -> None:
        """Replace the figure of the best by that of a fresh process.

        The best of many is partly the luckiest, and a process has habits (where code and buffers lie) that last as
        long as it does. What comes first then has been measured after it was chosen.
        """
        again: set[str] = set()
        while len(self._judged) > 1 and len(again) < MOST_TIMED_AGAIN:
            best = self.versions()[0]
            key = content_key(best.candidate.kernel, best.candidate.contract)
            timing = best.verdict.timing
            lucky = self.objective.metric == "time" and timing is not None and timing.kind == "measured"
            if not lucky or not best.verdict.worth_taking or key in again:
                break
            again.add(key)
            self.court.worker.renew()
            self._judged[key] = Judged(best.candidate, self._verdict(best.candidate))
        if again:
            self.notes.append("The best was judged and timed again in a fresh process; its figures are from there.")

    def _late(self) -> bool:
        return self.budget_s is not None and time.monotonic() - self._began > self.budget_s

    def _note_the_end(self) -> None:
        passed = len(self._glimpsed.keys() - self._judged.keys())
        if passed:
            self.notes.append(
                f"{passed} more were tried at the headline size alone, and left there: they gained nothing, or less than others."
            )
        if self.stopped():
            self.notes.append("Stopped before every suggestion was tried.")
        elif len(self._judged) >= self.max_candidates:
            self.notes.append(f"Ended after {self.max_candidates} candidates, the most that were allowed.")
        elif self._late():
            self.notes.append(f"Ended after {self.budget_s:g} s, the time that was allowed.")
        elif not self._judged and not self._glimpsed and not self.notes:
            self.notes.append("No suggestion applies to this kernel and this objective.")


def verdict_on(
    court: Court, candidate: Candidate, baselines: tuple[Trial, ...], objective: Objective | None
) -> Verdict:
    """A candidate's verdict over all instances; one that does what no candidate may is turned away before it is compiled.

    Raises:
        ReferenceFailed: the reference cannot be used. EnvironmentFailed: compiler or worker are not to be had.
    """
    # Recipes are our own code; what a model wrote is looked at before a compiler reads it. Reading it loads the syntax
    # tree's grammar, which judging does without.
    from kernelmate.suggest.untrusted import screen

    finding = None if candidate.author.startswith(TRUSTED) else screen(court.kernel, candidate.kernel)
    if finding is not None:
        return _turned_away(baselines[0].verdict, finding)
    edited = candidate.author.startswith(REWRITES)
    trials = court.candidates(
        candidate.kernel, candidate.contract, baselines, objective, edited=edited, until_hang=True
    )
    return _with_caution(candidate, _worst(trials))


def content_key(kernel: Kernel, contract: Contract) -> str:
    """What two versions share when judging one has judged the other: the code and the launch."""
    parts = (
        kernel.unit.text,
        kernel.name,
        *contract.grid,
        "|",
        *contract.block,
        "|",
        contract.shared,
        *contract.require,
    )
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _wrong(verdict: Verdict) -> bool:
    """It does not compile, gives wrong answers, or has a finding that rejects it."""
    errors = any(finding.severity == "error" for finding in verdict.findings)
    return errors or not verdict.compiled or verdict.correct is False


def _turned_away(baseline: Verdict, finding: Finding) -> Verdict:
    """The verdict on a text that is not even compiled."""
    return replace(
        baseline,
        binary=None,
        compiled=False,
        diagnostics=(),
        resources=None,
        occupancy=None,
        correct=None,
        cases=(),
        findings=(finding,),
        timing=None,
        speedup=None,
        counters=None,
        objective=None,
        accepted=False,
        reasons=(f"{finding.code}: {finding.message}",),
        **{field.name: field.default for field in fields(Verdict) if field.default is not MISSING},
    )


def _with_caution(candidate: Candidate, verdict: Verdict) -> Verdict:
    """The verdict of a candidate that its author wants to be read first: it is promising at most, and says why."""
    if candidate.caution is None or verdict.accepted is False:
        return verdict
    return replace(verdict, accepted=None, reasons=(candidate.caution, *verdict.reasons))


def _worst(trials: Sequence[Trial]) -> Verdict:
    """The verdict that stands for all instances: the first that was rejected, undecided, only promising, else the first."""
    order = {False: 0, None: 2, True: 3}
    return min(
        (trial.verdict for trial in trials), key=lambda verdict: 1 if verdict.undecided else order[verdict.accepted]
    )


def _not_worth_changing(baseline: Verdict, objective: Objective) -> str | None:
    """Why nothing is tried: a kernel that is wrong has nothing that a candidate could be held to, and a right one no fault."""
    if objective.metric == "correct":
        return _not_worth_mending(baseline)
    if not baseline.compiled:
        return "The kernel does not compile, so nothing was tried. Repair it first, by hand or by `kernelmate fix`."
    errors = [finding for finding in baseline.findings if finding.severity == "error"]
    if errors and baseline.correct is None:
        return f"The kernel itself could not be judged ({errors[0].code}), so nothing was tried. {errors[0].message}"
    if errors:
        return f"The kernel itself is not right ({errors[0].code}), so nothing was tried. Repair it first, by hand or by `kernelmate fix`."
    if baseline.correct is False:
        return "The kernel itself is not right, so nothing was tried. Repair it, or its reference, first."
    return None


def _not_worth_mending(baseline: Verdict) -> str | None:
    """Why nothing is to be mended; None for a kernel that was found to be wrong."""
    right = rightness(baseline)
    if right is None and baseline.findings:
        return f"The kernel could not be judged ({baseline.findings[0].code}), so nothing was tried. {baseline.findings[0].message}"
    if right is None:
        return "Nothing was found wrong, and nothing shows that it is right: give the contract a reference."
    if right and any(finding.severity == "warning" for finding in baseline.findings):
        return "The kernel is right at the sizes that are listed, so there is nothing to mend; what it is warned of is of other sizes."
    return "The kernel is right as it is, so there is nothing to mend." if right else None
