"""Order of the authors: recipes, the local model, Claude as its reviewer, and Claude as author if allowed.

The router is a suggester itself. It evaluates the verdicts before it asks the next author, which is needed only if no
earlier version was accepted, and which gets the verdicts of the failed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from kernelmate.records import Candidate, Cost, FindingCode, Judged
from kernelmate.suggest.base import AuthorFailed, Pause, Suggester, SuggestRequest
from kernelmate.suggest.replies import Audit, Proposal, Review, proposed
from kernelmate.suggest.turns import Steps, candidates_of, steps_of

SUSPICIOUS = FindingCode.SUSPICIOUS_SPEEDUP
MOST_NOTE = 400
"""Largest number of characters shown of a reviewer's sentence."""
WITHOUT_LOCAL = (
    "{name} was not asked: it reviews what a local model writes and then carries out, and none is set up. Add one with "
    "`kernelmate model add`, or let Claude write by the setting claude_may_write."
)

Answer = TypeVar("Answer")


class LocalAuthor(Protocol):
    """Interface of a local model: many cheap attempts."""

    @property
    def name(self) -> str:
        """The author's name in candidates."""
        ...

    @property
    def last_cost(self) -> Cost:
        """Cost of its last answer."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notices for the user about its answers, one line each."""
        ...

    def samples(self, request: SuggestRequest, count: int) -> Iterator[Proposal | Candidate]:
        """Yields different proposals, the most probable first, without invalid answers. Raises `AuthorFailed`."""
        ...

    def repair(self, request: SuggestRequest, failed: Judged) -> Iterator[Proposal | Candidate]:
        """Yields proposals that repair a version whose faults the prompt lists. Raises `AuthorFailed`."""
        ...

    def apply(self, request: SuggestRequest, review: Review) -> Iterator[Proposal | Candidate]:
        """Yields proposals that follow a review. Raises `AuthorFailed`."""
        ...


class Reviewer(Protocol):
    """Interface of a remote large model: few calls, each with consent and at a price."""

    @property
    def name(self) -> str:
        """The author's name in candidates."""
        ...

    @property
    def last_cost(self) -> Cost:
        """Cost of its last answer."""
        ...

    @property
    def account(self) -> str:
        """Returns the cost of all its calls so far, and the spending limit."""
        ...

    def review(self, request: SuggestRequest, failed: Judged | None) -> Review:
        """Returns advice on the next version. Raises `AuthorFailed`."""
        ...

    def audit(self, request: SuggestRequest, suspicious: Judged) -> Audit:
        """Returns an assessment of whether a version's speed is genuine. Raises `AuthorFailed`."""
        ...

    def write(self, request: SuggestRequest, review: Review | None = None) -> Proposal:
        """Returns a kernel that the reviewer wrote itself. Raises `AuthorFailed`."""
        ...


@dataclass(slots=True)
class Router:
    """Suggester that asks authors in turn until a version is accepted.

    Attributes:
        recipes: asked first; None to leave them out.
        local: asked if no recipe's version was accepted; None without a local model.
        reviewer: asked if no version of the local model was accepted; None if not allowed.
        samples: attempts of the local model in each round.
        rounds: number of rounds of the local model; each sees the verdicts of the previous ones.
        may_write: True if the reviewer may write a kernel itself.
        on_step: called with each step as one line.
        notes: remarks for the user, one line each: skipped authors, reviews, doubts of audits, costs.
    """

    recipes: Suggester | None = None
    local: LocalAuthor | None = None
    reviewer: Reviewer | None = None
    samples: int = 4
    rounds: int = 1
    may_write: bool = False
    on_step: Callable[[str], None] | None = None
    notes: list[str] = field(default_factory=list)
    name: str = "router"
    _local_answers: int = 0
    _local_cost: Cost = field(default_factory=Cost)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates of each author in turn; ends once one is accepted, or when the request is stopped.

        Recipes are always asked: an accepted version of an earlier suggester does not prevent that.
        """
        yield from candidates_of(self.steps(request))

    def steps(self, request: SuggestRequest) -> Steps:
        """Yields the candidates of `propose`, with pauses: models are asked only once other suggesters have ended."""
        for stage in (self._recipes, self._local, self._review, self._write):
            if stage == self._local and (self.local, self.reviewer) != (None, None) and not request.stop():
                yield Pause.AFTER_OTHERS
            if request.stop() or (stage != self._recipes and self._done(request)):
                break
            try:
                yield from stage(request)
            except AuthorFailed as error:
                self.notes.append(str(error))
                if error.kind == "cancelled":
                    break
        if self.local is not None:
            self.notes += self.local.notes
        self._audit(request)
        self._account()

    def _recipes(self, request: SuggestRequest) -> Steps:
        if self.recipes is not None:
            self._step("recipes")
            yield from steps_of(self.recipes, request)
            self.notes += getattr(self.recipes, "notes", ())

    def _local(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields samples, then repairs of the best rejected version."""
        if self.local is None:
            return
        for number in range(self.rounds):
            self._step(f"{self.local.name}, round {number + 1} of {self.rounds}")
            yield from self._tried(request, self.local.samples(request, self.samples))
            if request.stop() or self._done(request):
                return
            failed = self._best_failed(request, self.local.name)
            if failed is not None:
                self._step(f"{self.local.name} repairs its best version that failed")
                yield from self._until_done(request, self._tried(request, self.local.repair(request, failed)))
                if request.stop() or self._done(request):
                    return

    def _review(self, request: SuggestRequest) -> Iterator[Candidate]:
        reviewer = self.reviewer
        if reviewer is None:
            return
        if self.local is None:
            if not self.may_write:
                self.notes.append(WITHOUT_LOCAL.format(name=reviewer.name))
            return
        self._step(f"{reviewer.name} reviews")
        failed = self._best_failed(request, self.local.name)
        review = self._paid("review", lambda: reviewer.review(request, failed))
        self.notes += _said(reviewer.name, review)
        self._step(f"{self.local.name} carries out the review")
        yield from self._until_done(request, self._applied(request, self.local, review, reviewer.last_cost))

    def _applied(self, request: SuggestRequest, local: LocalAuthor, review: Review, paid: Cost) -> Iterator[Candidate]:
        """Yields the local model's versions after a review; the first carries the cost of the review."""
        steps = (review.analysis, *(f"{step.what} {step.why}".strip() for step in review.optimizations))
        for candidate in self._tried(request, local.apply(request, review)):
            cost = (candidate.cost or Cost()) + paid
            yield replace(candidate, cost=cost, steps=(*steps, *candidate.steps))
            paid = Cost()

    def _write(self, request: SuggestRequest) -> Iterator[Candidate]:
        reviewer = self.reviewer
        if reviewer is None or not self.may_write:
            return
        self._step(f"{reviewer.name} writes")
        proposal = self._paid("kernel", lambda: reviewer.write(request))
        candidate = self._candidate(request, proposal, reviewer.name, reviewer.last_cost)
        if candidate is not None:
            yield candidate

    def _tried(self, request: SuggestRequest, proposals: Iterator[Proposal | Candidate]) -> Iterator[Candidate]:
        """Yields the local model's proposals as candidates, until the request is stopped."""
        assert self.local is not None
        for proposal in proposals:
            self._local_answers += 1
            self._local_cost += self.local.last_cost
            if request.stop():
                return
            candidate = self._candidate(request, proposal, self.local.name, self.local.last_cost)
            if candidate is not None:
                yield candidate

    def _candidate(
        self, request: SuggestRequest, proposal: Proposal | Candidate, author: str, cost: Cost
    ) -> Candidate | None:
        """Returns a proposal as a candidate; None, with a note, if it cannot be inserted into the file."""
        try:
            return proposed(request, proposal, author, cost)
        except AuthorFailed as error:
            self.notes.append(str(error))
            return None

    def _until_done(self, request: SuggestRequest, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        for candidate in candidates:
            yield candidate
            if self._done(request):
                return

    def _audit(self, request: SuggestRequest) -> None:
        """Lets the reviewer audit the best version if its speed-up is suspicious, even without remaining budget."""
        best, reviewer = next(iter(request.versions()), None), self.reviewer
        if reviewer is None or best is None or not best.verdict.worth_taking:
            return
        if not any(finding.code == SUSPICIOUS for finding in best.verdict.findings):
            return
        self._step(f"{reviewer.name} looks for what is wrong with the best version")
        try:
            audit = self._paid("audit", lambda: reviewer.audit(request, best))
        except AuthorFailed as error:
            self.notes.append(str(error))
            return
        if audit.computes_the_contract and audit.honestly_fast and not audit.doubts:
            self.notes.append(f"{reviewer.name} finds no reason to doubt the best version.")
        elif not audit.doubts:
            what = "computes what it should" if not audit.computes_the_contract else "is honestly fast"
            self.notes.append(f"{reviewer.name} doubts that the best version {what}, and does not say why.")
        for doubt in audit.doubts:
            self.notes.append(
                _short(f"{reviewer.name} doubts the best version ({doubt.kind}, {doubt.where}): {doubt.what}")
            )

    def _paid(self, what: str, call: Callable[[], Answer]) -> Answer:
        """Returns the answer of a call to the reviewer, and notes its cost even if the call fails."""
        assert self.reviewer is not None
        try:
            return call()
        finally:
            cost = self.reviewer.last_cost
            if cost.words:
                self.notes.append(f"{self.reviewer.name}, {what}: {cost.words}; {self.reviewer.account}.")

    def _account(self) -> None:
        """Notes the local model's input and output tokens, if its server counts them."""
        cost = replace(self._local_cost, usd=None).words
        if self.local is not None and cost:
            answers = "1 answer" if self._local_answers == 1 else f"{self._local_answers} answers"
            self.notes.append(f"{self.local.name}, {answers}: {cost}.")

    def _step(self, text: str) -> None:
        if self.on_step is not None:
            self.on_step(text)

    @staticmethod
    def _done(request: SuggestRequest) -> bool:
        """Returns True if a version is accepted, or promising if this backend cannot accept it."""
        return any(judged.verdict.worth_taking for judged in request.versions())

    @staticmethod
    def _best_failed(request: SuggestRequest, author: str) -> Judged | None:
        """Returns the best of an author's versions; None without any."""
        failed = [judged for judged in request.versions() if judged.candidate.author == author]
        return failed[0] if failed else None


def _said(name: str, review: Review) -> list[str]:
    """Formats a review as notes: the kernel's limits, the version's faults, the next steps."""
    speed = "" if review.estimated_speedup is None else f" It expects {review.estimated_speedup:.2f}x, if done well."
    problems = [f"{name} finds ({one.kind}, {one.where}): {one.what}" for one in review.problems]
    steps = [f"{name} advises: {step.what} Why: {step.why}" for step in review.optimizations]
    return [_short(text) for text in (f"{name} reviews: {review.analysis}{speed}", *problems, *steps)]


def _short(text: str) -> str:
    """Returns the text on one line, truncated if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_NOTE else f"{line[: MOST_NOTE - 3]}..."
