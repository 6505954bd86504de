"""Authors are asked in their order, each only where the last did not do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from kernelmate.records import Candidate, Cost, Finding, FindingCode, Judged, Verdict
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.replies import Audit, Problem, Proposal, Review, Step
from kernelmate.suggest.router import Router
from kernelmate.suggest.scripted import Scripted
from kernelmate.suggest.untrusted import screen

LOCAL_COST, CLAUDE_COST = Cost(5, 6, 0.0), Cost(7, 8, 0.5)

SOURCE = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float *x, int n) { /* 0 */ }
"""


def version(word: str) -> str:
    return f"__global__ void k(float *x, int n) {{ /* {word} */ }}"


def proposal(word: str) -> Proposal:
    return Proposal("", (Step(word, ""),), version(word))


@dataclass
class Local:
    """A local model that answers from lists; an exception among the answers is raised."""

    first: Sequence[object] = ()
    repaired: Sequence[object] = ()
    applied: Sequence[object] = ()
    calls: list[str] = field(default_factory=list)
    name: str = "local:small"
    last_cost: Cost = LOCAL_COST
    notes: Sequence[str] = ()

    def _say(self, call: str, answers: Sequence[object]) -> Iterator[Proposal]:
        self.calls.append(call)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer if isinstance(answer, Proposal) else proposal(str(answer))

    def samples(self, request: SuggestRequest, count: int) -> Iterator[Proposal]:
        return self._say(f"samples {count}", self.first)

    def repair(self, request: SuggestRequest, failed: Judged) -> Iterator[Proposal]:
        return self._say(f"repair {failed.candidate.why}", self.repaired)

    def apply(self, request: SuggestRequest, review: Review) -> Iterator[Proposal]:
        return self._say(f"apply {review.analysis}", self.applied)


@dataclass
class Reviewer:
    """A reviewer that answers the same each time."""

    error: AuthorFailed | None = None
    doubts: tuple[Problem, ...] = ()
    calls: list[str] = field(default_factory=list)
    name: str = "claude:big"
    last_cost: Cost = CLAUDE_COST
    account: str = "so much of so much"

    def _say(self, call: str) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    def review(self, request: SuggestRequest, failed: Judged | None) -> Review:
        self._say(f"review {failed.candidate.why if failed else None}")
        return Review("the review", (), (Step("do", "it"),))

    def audit(self, request: SuggestRequest, suspicious: Judged) -> Audit:
        self._say(f"audit {suspicious.candidate.why}")
        return Audit(not self.doubts, not self.doubts, self.doubts)

    def write(self, request: SuggestRequest, review: Review | None = None) -> Proposal:
        self._say("write")
        return proposal("good by Claude")


@dataclass
class Trial:
    """A search in small: judges by a word in the text, and keeps what it was given."""

    request: SuggestRequest
    verdict: Callable[..., Verdict]
    judged: list[Judged] = field(default_factory=list)
    stopped: bool = False

    def run(self, router: Router) -> list[str]:
        request = replace(self.request, versions=self.versions, stop=lambda: self.stopped)
        for candidate in router.propose(request):
            self.judged.append(self.judge(candidate))
        return [one.candidate.author for one in self.judged]

    def judge(self, candidate: Candidate) -> Judged:
        good = "good" in candidate.kernel.source
        odd = (
            (Finding(FindingCode.SUSPICIOUS_SPEEDUP, "warning", "much faster"),)
            if "odd" in candidate.kernel.source
            else ()
        )
        return Judged(candidate, replace(self.verdict(), accepted=good, findings=odd))

    def versions(self) -> list[Judged]:
        return sorted(self.judged, key=lambda one: one.verdict.accepted is False)


@pytest.fixture
def trial(ask: Callable[..., SuggestRequest], verdict: Callable[..., Verdict]) -> Trial:
    return Trial(ask(SOURCE), verdict)


def test_a_recipe_that_is_accepted_ends_it(trial: Trial) -> None:
    local, reviewer = Local(["good"]), Reviewer()
    recipes = Scripted([version("bad"), version("good")], name="recipes")
    assert trial.run(Router(recipes, local, reviewer)) == ["plugin:recipes", "plugin:recipes"]
    assert (local.calls, reviewer.calls) == ([], [])


def test_the_local_model_is_asked_where_recipes_fail(trial: Trial) -> None:
    local, reviewer = Local(["bad", "good"]), Reviewer()
    assert trial.run(Router(Scripted([version("b")]), local, reviewer)) == [
        "plugin:scripted",
        "local:small",
        "local:small",
    ]
    assert (local.calls, reviewer.calls) == (["samples 4"], [])


def test_all_samples_of_a_round_are_judged_side_by_side(trial: Trial) -> None:
    local = Local(["good", "bad", "good too"], ["never"])
    assert trial.run(Router(None, local, rounds=3)) == ["local:small"] * 3
    assert local.calls == ["samples 4"]


def test_its_best_failure_is_repaired_then_reviewed_and_the_review_applied(trial: Trial) -> None:
    local, reviewer = Local(["bad 1"], ["bad 2"], ["good"]), Reviewer()
    steps: list[str] = []
    trial.run(Router(None, local, reviewer, may_write=True, on_step=steps.append))
    assert local.calls == ["samples 4", "repair bad 1", "apply the review"]
    assert reviewer.calls == ["review bad 1"]
    assert steps == [
        "local:small, round 1 of 1",
        "local:small repairs its best version that failed",
        "claude:big reviews",
        "local:small carries out the review",
    ]


def test_claude_writes_only_where_it_may(trial: Trial) -> None:
    reviewer = Reviewer()
    assert trial.run(Router(None, Local(["bad"], ["bad"], ["bad"]), reviewer)) == ["local:small"] * 3
    assert "write" not in reviewer.calls


def test_claude_writes_last(trial: Trial) -> None:
    reviewer = Reviewer()
    authors = trial.run(Router(None, Local(["a"], ["b"], ["c"]), reviewer, may_write=True))
    assert authors == ["local:small"] * 3 + ["claude:big"]
    assert reviewer.calls == ["review a", "write"]


def test_without_a_local_model_claude_writes_without_a_review(trial: Trial) -> None:
    reviewer = Reviewer()
    assert trial.run(Router(None, None, reviewer, may_write=True)) == ["claude:big"]
    assert reviewer.calls == ["write"]


def test_an_author_that_fails_is_skipped_with_one_line(trial: Trial) -> None:
    local = Local([AuthorFailed("missing", "No model is set up.")])
    router = Router(None, local, Reviewer(AuthorFailed("consent", "Not agreed to.")), may_write=True)
    assert trial.run(router) == []
    assert [note for note in router.notes if "tokens" not in note] == [
        "No model is set up.",
        "Not agreed to.",
        "Not agreed to.",
    ]


def test_nonsense_costs_a_note_and_the_next_sample_is_tried(trial: Trial) -> None:
    nonsense = Proposal("", (), "I am a little model, short and stout.")
    router = Router(None, Local([nonsense, "good"]))
    assert trial.run(router) == ["local:small"]
    assert "defines 0 kernels" in router.notes[0]
    assert len(router.notes) == 2


def test_rounds_end_once_a_version_is_accepted(trial: Trial) -> None:
    local = Local(["bad"], [])
    trial.run(Router(None, local, rounds=3, samples=2))
    assert local.calls == ["samples 2", "repair bad"] * 3


def test_stopping_ends_it_at_the_next_candidate(trial: Trial) -> None:
    local = Local(["a", "b", "c"])

    def judge(candidate: Candidate) -> Judged:
        trial.stopped = True
        return Trial.judge(trial, candidate)

    trial.judge = judge  # type: ignore[method-assign]
    assert trial.run(Router(None, local, Reviewer(), may_write=True)) == ["local:small"]
    assert local.calls == ["samples 4"]


def test_a_best_version_of_unexplained_speed_is_audited(trial: Trial) -> None:
    reviewer = Reviewer(doubts=(Problem("cheating", "line 1", "It skips half."),))
    router = Router(Scripted([version("good odd")]), None, reviewer)
    trial.run(router)
    assert reviewer.calls == ["audit it was told to"]
    assert router.notes == [
        "claude:big, audit: 7 tokens read, 8 written, 0.5000 USD; so much of so much.",
        "claude:big doubts the best version (cheating, line 1): It skips half.",
    ]


def test_it_is_audited_also_where_the_search_has_used_up_what_it_was_given(trial: Trial) -> None:
    reviewer = Reviewer()

    def judge(candidate: Candidate) -> Judged:
        trial.stopped = True
        return Trial.judge(trial, candidate)

    trial.judge = judge  # type: ignore[method-assign]
    trial.run(Router(Scripted([version("good odd"), version("bad")]), None, reviewer))
    assert reviewer.calls == ["audit it was told to"]


def test_a_best_version_whose_speed_is_explained_is_not(trial: Trial) -> None:
    reviewer = Reviewer()
    trial.run(Router(Scripted([version("good")]), None, reviewer))
    assert reviewer.calls == []


def test_candidates_say_what_they_have_cost_and_a_review_counts_once(trial: Trial) -> None:
    trial.run(Router(None, Local(["a"], ["b"], ["c", "d"]), Reviewer(), may_write=True))
    review = Cost(12, 14, 0.5)
    assert [one.candidate.cost for one in trial.judged] == [
        LOCAL_COST,
        LOCAL_COST,
        review,
        LOCAL_COST,
        CLAUDE_COST,
    ]


def test_what_was_paid_and_what_a_review_says_is_told(trial: Trial) -> None:
    router = Router(None, Local(["a"], ["b"], ["c"]), Reviewer(), may_write=True)
    trial.run(router)
    assert router.notes == [
        "claude:big, review: 7 tokens read, 8 written, 0.5000 USD; so much of so much.",
        "claude:big reviews: the review",
        "claude:big advises: do Why: it",
        "claude:big, kernel: 7 tokens read, 8 written, 0.5000 USD; so much of so much.",
        "local:small, 3 answers: 15 tokens read, 18 written.",
    ]


def test_a_version_made_from_a_review_keeps_how_it_came_about(trial: Trial) -> None:
    trial.run(Router(None, Local(["a"], ["b"], ["c"]), Reviewer()))
    assert trial.judged[-1].candidate.steps == ("the review", "do it", "c")


def test_a_text_that_may_not_be_compiled_becomes_a_candidate_that_is_turned_away(trial: Trial) -> None:
    hostile = Proposal("", (Step("bad", ""),), '#include "/etc/passwd"\n' + version("bad"))
    local = Local([hostile], ["good"])
    trial.run(Router(None, local))
    first, _ = trial.judged
    finding = screen(trial.request.kernel, first.candidate.kernel)
    assert finding is not None
    assert finding.code == "forbidden-source"
    assert local.calls == ["samples 4", "repair bad"]


def test_a_reviewer_with_nobody_to_carry_its_review_out_is_not_paid_for_one(trial: Trial) -> None:
    reviewer = Reviewer()
    router = Router(Scripted([version("bad")]), None, reviewer)
    trial.run(router)
    assert reviewer.calls == []
    (note,) = router.notes
    assert "kernelmate model add" in note
