"""Who is asked, in which order: recipes, the local model, Claude as its reviewer, and Claude as author where allowed.

The router is a suggester itself. It looks at each verdict before it asks the next author, since the next author is only
needed where the last one did not do it, and learns from what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kernelmate.records import Candidate, Cost, Judged
from kernelmate.suggest.base import AuthorFailed, Suggester, SuggestRequest
from kernelmate.suggest.proposals import proposed
from kernelmate.suggest.replies import Audit, Proposal, Review

SUSPICIOUS = "suspicious-speedup"


class LocalAuthor(Protocol):
    """A model near by: many cheap attempts."""

    @property
    def name(self) -> str:
        """The author's name in candidates."""
        ...

    @property
    def last_cost(self) -> Cost:
        """Of its last answer."""
        ...

    def samples(self, request: SuggestRequest, count: int) -> Iterator[Proposal]:
        """Different proposals, likeliest first. Raises `AuthorFailed`; an answer that cannot be read is left out."""
        ...

    def repair(self, request: SuggestRequest, failed: Judged) -> Iterator[Proposal]:
        """Proposals that mend a version, told what was wrong with it. Raises `AuthorFailed`."""
        ...

    def apply(self, request: SuggestRequest, review: Review) -> Iterator[Proposal]:
        """Proposals that carry out a review. Raises `AuthorFailed`."""
        ...


class Reviewer(Protocol):
    """A large model far away: few calls, each with consent and at a price."""

    @property
    def name(self) -> str:
        """The author's name in candidates."""
        ...

    @property
    def last_cost(self) -> Cost:
        """Of its last answer."""
        ...

    def review(self, request: SuggestRequest, failed: Judged | None) -> Review:
        """What to do next. Raises `AuthorFailed`."""
        ...

    def audit(self, request: SuggestRequest, suspicious: Judged) -> Audit:
        """Whether a version is to be trusted. Raises `AuthorFailed`."""
        ...

    def write(self, request: SuggestRequest, review: Review | None = None) -> Proposal:
        """A kernel of its own. Raises `AuthorFailed`."""
        ...


@dataclass(slots=True)
class Router:
    """Asks authors in turn until a version is accepted.

    Attributes:
        recipes: asked first; None to leave them out.
        local: asked where no recipe's version was accepted; None where there is no model.
        reviewer: asked where no version of the local model was accepted; None where it may not be.
        samples: attempts of the local model in each round.
        rounds: how often the local model is asked, each time with what was learnt.
        may_write: the reviewer may write a kernel itself.
        on_step: told of each step in one line.
        notes: who was skipped and why, one line each, and what an audit doubts.
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

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Candidates of each author in turn; ends once one is accepted, or the request says stop."""
        for stage in (self._recipes, self._local, self._review, self._write):
            if request.stop() or self._done(request):
                break
            try:
                yield from stage(request)
            except AuthorFailed as error:
                self.notes.append(str(error))
                if error.kind == "cancelled":
                    break
        self._audit(request)

    def _recipes(self, request: SuggestRequest) -> Iterator[Candidate]:
        if self.recipes is not None:
            self._step("recipes")
            yield from self.recipes.propose(request)

    def _local(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Samples, then the best that failed again with its verdict."""
        if self.local is None:
            return
        for number in range(self.rounds):
            self._step(f"{self.local.name}, round {number + 1} of {self.rounds}")
            yield from self._tried(request, self.local.samples(request, self.samples), self.local)
            if request.stop() or self._done(request):
                return
            failed = self._best_failed(request, self.local.name)
            if failed is not None:
                self._step(f"{self.local.name} repairs its best version that failed")
                yield from self._tried(request, self.local.repair(request, failed), self.local)
                if request.stop() or self._done(request):
                    return

    def _review(self, request: SuggestRequest) -> Iterator[Candidate]:
        if self.reviewer is None or self.local is None:
            return
        self._step(f"{self.reviewer.name} reviews")
        review = self.reviewer.review(request, self._best_failed(request, self.local.name))
        self._step(f"{self.local.name} carries out the review")
        yield from self._tried(request, self.local.apply(request, review), self.local)

    def _write(self, request: SuggestRequest) -> Iterator[Candidate]:
        if self.reviewer is None or not self.may_write:
            return
        self._step(f"{self.reviewer.name} writes")
        proposal = self.reviewer.write(request)
        yield from self._tried(request, iter([proposal]), self.reviewer)

    def _tried(
        self, request: SuggestRequest, proposals: Iterator[Proposal], author: LocalAuthor | Reviewer
    ) -> Iterator[Candidate]:
        """Proposals as candidates; one that cannot be put into the file costs a note and nothing else."""
        for proposal in proposals:
            if request.stop():
                return
            try:
                candidate = proposed(request, proposal, author.name, author.last_cost)
            except AuthorFailed as error:
                self.notes.append(str(error))
                continue
            yield candidate
            if self._done(request):
                return

    def _audit(self, request: SuggestRequest) -> None:
        """Let the reviewer doubt the best version where its speed is not explained."""
        best = next(iter(request.versions()), None)
        if self.reviewer is None or best is None or best.verdict.accepted is False or request.stop():
            return
        if not any(finding.code == SUSPICIOUS for finding in best.verdict.findings):
            return
        self._step(f"{self.reviewer.name} looks for what is wrong with the best version")
        try:
            audit = self.reviewer.audit(request, best)
        except AuthorFailed as error:
            self.notes.append(str(error))
            return
        if audit.computes_the_contract and audit.honestly_fast and not audit.doubts:
            self.notes.append(f"{self.reviewer.name} finds no reason to doubt the best version.")
        for doubt in audit.doubts:
            self.notes.append(
                f"{self.reviewer.name} doubts the best version ({doubt.kind}, {doubt.where}): {doubt.what}"
            )

    def _step(self, text: str) -> None:
        if self.on_step is not None:
            self.on_step(text)

    @staticmethod
    def _done(request: SuggestRequest) -> bool:
        """A version is accepted, or as good as can be told here."""
        return any(judged.verdict.accepted is not False for judged in request.versions())

    @staticmethod
    def _best_failed(request: SuggestRequest, author: str) -> Judged | None:
        """The best of an author's versions, none of which was accepted."""
        failed = [judged for judged in request.versions() if judged.candidate.author == author]
        return failed[0] if failed else None
