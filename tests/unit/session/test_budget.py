"""A search ends in the time that it was given, with the best version judged once more in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.decide.objective import read_objective
from kernelmate.errors import ReferenceFailed
from kernelmate.records import (
    Candidate,
    FindingCode,
    Judged,
    Judgement,
    JudgeTask,
    Kernel,
    SearchState,
    Speedup,
    Timing,
)
from kernelmate.session.budget import LEAST_S, TimeBudget
from kernelmate.session.searching import Search, _step_of
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.worker.base import TaskDeath, no_verdict_within

QUICK_S, FULL_S, STARTED_S = 1.0, 4.0, 6.0
"""Seconds of a quick evaluation, of a full verdict, and of one by a process that knows nothing yet."""


class Clock:
    """Moves when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Gpu:
    """Answers with measured times: version `n` takes 100 - n microseconds. Each answer takes its time by the clock.

    Where `refused`, the reference fails on the inputs of any other seed than the search's.
    """

    def __init__(self, clock: Clock, judgement: Callable[..., Judgement], *, refused: bool) -> None:
        self.clock, self.judgement, self.refused = clock, judgement, refused
        self.worker: Any = None
        self.seen: dict[str, set[int]] = {"quick": set(), "full": set(), "final": set()}

    def __call__(self, task: JudgeTask) -> Judgement:
        if self.refused and task.seed != 7:
            raise ReferenceFailed("The reference raised.")
        kind = "quick" if task.glance else "final" if self.worker.renewed else "full"
        known = self.seen[kind]
        self.clock.now += QUICK_S if task.glance else FULL_S if task.seed in known or kind == "full" else STARTED_S
        known.add(task.seed)
        text = task.candidate.unit.text
        us = 100.0 - (int(text.rsplit("n == -", 1)[1].split(")")[0]) if "n == -" in text else 0)
        made = self.judgement(task, us=us)
        timing = Timing("measured", us, (us * 0.99, us * 1.01), us, None, 40, 1980, False)
        ratio = None if task.baseline is None else Speedup("measured", 100 / us, (99 / us, 101 / us))
        beside = None if task.baseline is None else replace(timing, median_us=100.0)
        metrics = tuple(replace(one, timing=timing, beside=beside, speedup=ratio) for one in made.metrics)
        return replace(made, metrics=metrics)


class Climbing:
    """Looks at one version after another, each a little faster than the one before, and judges every third in full."""

    name = "climbing"

    def __init__(self, count: int) -> None:
        self.count = count

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        assert request.quick_evaluation is not None
        end = request.kernel.end - 1
        for number in range(1, self.count + 1):
            if request.stop():
                return
            kernel = apply_edits(request.kernel, [(end, end, f"if (n == -{number}) y[0] = 1.0f;")])
            candidate = Candidate(f"recipe:{number}", "It is faster.", kernel, request.contract)
            request.quick_evaluation(candidate)
            if number % 3 == 0:
                yield candidate


@pytest.fixture
def searched(scripted: Callable, load: Callable[..., Kernel], scale: str, judgement: Callable[..., Judgement]):
    """Search with a budget by a clock that only evaluations move; gives what was found, the GPU, and the seconds taken."""

    def search(
        budget_s: float | None, count: int = 90, *, refused: bool = False, **more: Any
    ) -> tuple[Any, Gpu, float]:
        clock = Clock()
        gpu = Gpu(clock, judgement, refused=refused)
        session, gpu.worker = scripted(gpu, backend="emulator")
        began = clock()
        context = session._context(load(scale), (), None)
        baselines = context.baselines()
        budget = TimeBudget(budget_s, clock() - began, began, clock)
        objective = read_objective("make it faster")
        found = Search(context, baselines, objective, 1000, budget, None, lambda: False, **more).run([Climbing(count)])
        return found, gpu, clock() - began

    return search


@pytest.mark.parametrize("budget_s", [60.0, 100.0])
def test_a_search_ends_within_a_tenth_of_its_budget_with_the_best_judged_again(searched, budget_s: float) -> None:
    found, gpu, elapsed = searched(budget_s)
    assert 0.9 * budget_s <= elapsed <= 1.1 * budget_s
    assert gpu.worker.renewed == 1
    assert any("fresh process" in note for note in found.notes)
    assert any("time that was allowed" in note for note in found.notes)
    assert found.candidates[0].verdict.accepted


def test_the_best_is_judged_on_inputs_that_the_search_never_used(searched) -> None:
    found, gpu, _ = searched(None, count=9)
    assert gpu.seen["quick"] == gpu.seen["full"] == {7}
    (fresh,) = gpu.seen["final"]
    assert fresh != 7
    assert found.candidates[0].verdict.seed == fresh
    assert {one.verdict.seed for one in found.candidates[1:]} == {7}


def test_a_reference_that_fails_on_other_inputs_costs_the_last_verdict_and_no_more(searched) -> None:
    found, gpu, _ = searched(None, count=9, refused=True)
    assert [one.verdict.accepted for one in found.candidates] == [True] * len(found.candidates)
    assert found.best == 0
    assert found.candidates[0].verdict.seed == 7
    assert found.notes[-1] == "The best could not be judged again on other inputs: The reference raised."
    assert gpu.worker.renewed == 1


def test_what_looked_best_is_judged_in_full_before_the_time_is_over(searched) -> None:
    found, _, elapsed = searched(60.0)
    tried = max(int(one.candidate.author.removeprefix("recipe:")) for one in found.candidates)
    assert found.candidates[0].candidate.author == f"recipe:{tried}"
    assert elapsed <= 60.0
    few, _, _ = searched(None, count=4)
    assert few.candidates[0].candidate.author == "recipe:4"


def test_with_too_little_time_one_version_is_tried_and_that_is_said(searched) -> None:
    found, gpu, _ = searched(5.0)
    assert len(found.candidates) <= 1
    assert gpu.seen["quick"] == {7}
    assert gpu.worker.renewed == 0
    assert any("time that was allowed" in note for note in found.notes)


def test_suggesters_that_the_budget_left_are_named_with_the_time_that_was_used(searched) -> None:
    found, _, _ = searched(20.0)
    assert any(
        note.startswith("The search used ")
        and "of its budget of 20 s" in note
        and "Not tried to the end: climbing." in note
        for note in found.notes
    )


def test_an_evaluation_is_ended_where_it_would_exceed_the_budget_by_more_than_a_tenth() -> None:
    clock = Clock()
    budget = TimeBudget(20.0, 4.0, clock=clock)
    assert budget.allowed_s() == 22.0
    assert budget.allowed_s("final") == 20.0
    clock.now += 21.0
    assert budget.allowed_s() == LEAST_S
    assert budget.allowed_s(first=True) == 10.0
    assert TimeBudget(None).allowed_s() is None


def test_a_version_that_the_end_of_the_budget_interrupts_has_no_verdict_and_is_named(
    scripted: Callable, load: Callable[..., Kernel], scale: str, judgement: Callable[..., Judgement]
) -> None:
    limits: list[float] = []
    session, worker = scripted(judgement, backend="emulator")
    usual = worker.judge

    def judge(task: JudgeTask, on_progress: Any = None, timeout_s: float = 0.0) -> Any:
        if task.baseline is None:
            return usual(task, on_progress, timeout_s)
        limits.append(timeout_s)
        return TaskDeath(FindingCode.HANG, "launch", f"{no_verdict_within(timeout_s)}; the last stage was launch.")

    worker.judge = judge
    found = session.optimize(load(scale), "make it faster", suggesters=(Climbing(3),), budget_s=4.0)
    assert limits
    assert max(limits) <= 4.4
    assert found.candidates == ()
    assert any(note.startswith("recipe:1") and "interrupted when the time was over" in note for note in found.notes)


def test_each_attempt_is_told_before_it_is_made_with_the_best_so_far(searched) -> None:
    told: list[SearchState] = []
    searched(60.0, count=4, on_trying=told.append)
    assert [(one.author, one.quick) for one in told] == [
        ("recipe:1", True), ("recipe:2", True), ("recipe:3", True), ("recipe:3", False), ("recipe:4", True), ("recipe:4", False),
    ]  # fmt: skip
    assert [one.tried for one in told] == [0, 1, 2, 3, 3, 4]
    assert [None if one.best is None else one.best.candidate.author for one in told[3:]] == [
        None,
        "recipe:3",
        "recipe:3",
    ]
    assert {one.budget_s for one in told} == {60.0}
    assert told[-1].elapsed_s == FULL_S + 4 * QUICK_S + FULL_S


@pytest.mark.parametrize(("same_as", "times"), [("the baseline", 0), ("recipe:first", 1)])
def test_a_version_with_the_binary_of_another_has_its_verdict_and_is_not_judged(
    same_as: str, times: int, scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    class Twice:
        name = "twice"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            end = request.kernel.end - 1
            code = "" if same_as == "the baseline" else "if (n == -5) y[0] = 1.0f;"
            for name, comment in (("first", " /* one */"), ("second", " /* two */")):
                kernel = apply_edits(request.kernel, [(end, end, code + comment)])
                candidate = Candidate(f"recipe:{name}", "It is another text.", kernel, request.contract)
                if request.quick_evaluation is not None:
                    request.quick_evaluation(candidate)
                yield candidate

    session, worker = scripted()
    told: list[Judged] = []
    found = session.optimize(load(scale), "make it faster", suggesters=(Twice(),), on_judged=told.append)
    assert len([task for task in worker.tasks if task.baseline is not None and not task.glance]) == times
    assert len([task for task in worker.tasks if task.glance]) == times
    assert [one.candidate.author for one in told] == ["recipe:first", "recipe:second"]
    assert told[1].verdict.binary == told[0].verdict.binary
    assert f"the same binary and launch as {same_as}, whose verdict this is" in told[1].verdict.reasons
    assert any("binary and launch of another version" in note for note in found.notes)
    assert found.best is None or found.candidates[found.best].candidate.author == "recipe:first"


def test_a_version_that_does_not_compile_keeps_no_other_from_being_known_by_its_binary(
    scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    class Broken:
        name = "broken"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            end = request.kernel.end - 1
            for code in ("nonsense;", "other nonsense;", "/* nothing */"):
                kernel = apply_edits(request.kernel, [(end, end, code)])
                assert request.quick_evaluation is not None
                yield request.quick_evaluation(Candidate(f"recipe:{code}", "", kernel, request.contract)).candidate

    session, worker = scripted()
    found = session.optimize(load(scale), "make it faster", suggesters=(Broken(),))
    assert [task for task in worker.tasks if task.baseline is not None] == []
    assert sorted(one.verdict.compiled for one in found.candidates) == [False, False, True]


def test_another_launch_of_the_same_binary_is_judged(
    scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    class Blocks:
        name = "blocks"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            for block in ("128", "64"):
                yield Candidate("recipe:launch", block, request.kernel, replace(request.contract, block=(block,)))

    session, worker = scripted()
    session.optimize(load(scale), "make it faster", suggesters=(Blocks(),))
    assert len([task for task in worker.tasks if task.baseline is not None]) == 2


def test_a_kernel_with_tensor_cores_is_expected_to_take_longer_until_one_was_judged() -> None:
    clock = Clock()
    budget = TimeBudget(10.0, clock=clock)
    with budget.spent_on("full"):
        clock.now += 3.0
    assert budget.fits("full")
    assert not budget.fits("slow")
    with budget.spent_on("slow"):
        clock.now += 2.0
    assert budget.fits("slow")


@pytest.mark.parametrize(
    ("ptx", "step"), [("mma.sync.aligned.m16n8k16", "slow"), ("cp.async.ca.shared.global", "full"), ("mad.f32", "full")]
)
def test_instructions_without_native_code_make_a_verdict_slow(ptx: str, step: str) -> None:
    prepared: Any = [SimpleNamespace(compiled=SimpleNamespace(ptx=ptx))]
    assert _step_of(prepared) == step
