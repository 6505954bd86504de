"""A search judges what is proposed, once each, and puts what is worth taking first."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kernelmate.errors import KernelmateError, ReferenceFailed, UsageError
from kernelmate.records import Candidate, Finding, FindingCode, Judged, Judgement, JudgeTask, Kernel, Speedup, Timing
from kernelmate.source import apply_edits, contract_for
from kernelmate.suggest.base import SuggestRequest
from kernelmate.worker.client import TaskDeath

Load = Callable[..., Kernel]
Make = Callable[..., Any]
SECTORS = 100


class Proposer:
    """Proposes the kernel with `/* WORD */` in its body for each word, and keeps its request."""

    name = "proposer"

    def __init__(self, *words: str) -> None:
        self.words = words
        self.request: SuggestRequest | None = None
        self.asked = 0

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        self.request = request
        for word in self.words:
            self.asked += 1
            yield changed(request.kernel, word)


def changed(kernel: Kernel, word: str) -> Candidate:
    """The kernel with a comment, and code that no other word leads to: equal binaries share a verdict."""
    own = f"/* {word} */ if (n == -{zlib.crc32(word.encode()) >> 2}) y[0] = 1.0f;"
    edits = [(kernel.end - 1, kernel.end - 1, own)] if word else []
    return Candidate("test:proposer", f"Because of {word}.", apply_edits(kernel, edits), contract_for(kernel))


@pytest.fixture
def answer(judgement: Callable[..., Judgement]) -> Callable[[JudgeTask], Judgement | TaskDeath]:
    """Sectors as the candidate's comment says (`/* 40 */`), or the way in which it fails."""

    def make(task: JudgeTask) -> Judgement | TaskDeath:
        text = task.candidate.unit.text
        word = text.rsplit("/* ", 1)[1].split(" */")[0] if "/* " in text else str(SECTORS)
        if word == "crash":
            return TaskDeath("worker-crash", "kernel", "It crashed.")
        if word == "wrong":
            return judgement(task, correct=False, sectors=1)
        if word == "race":
            return judgement(task, sectors=1, findings=(Finding(FindingCode.SHARED_RACE, "error", "A race."),))
        if word == "reference":
            raise ReferenceFailed("The reference raised.")
        if word.startswith("us"):
            return judgement(task, us=float(word[2:]))
        return judgement(task, sectors=int(word))

    return make


def words(judged: Sequence[Judged]) -> list[str]:
    return [one.candidate.why.removeprefix("Because of ").rstrip(".") for one in judged]


PROMPT = "reduce global memory traffic"


class Measuring:
    """A worker whose times are measured: `/* us8 */` takes 8 us, and after each renewal what `later` says.

    Ratios are taken of the blocks, as on a GPU.
    """

    def __init__(self, judgement: Callable[..., Judgement], later: dict[str, float]) -> None:
        self.judgement, self.later = judgement, later
        self.worker: Any = None

    def __call__(self, task: JudgeTask) -> Judgement:
        text = task.candidate.unit.text
        word = text.rsplit("/* ", 1)[1].split(" */")[0] if "/* " in text else "us10"
        us = float(word[2:])
        if self.worker.renewed:
            us = self.later.get(word, us)
        made = self.judgement(task, us=us)
        timing = Timing("measured", us, (us * 0.99, us * 1.01), us, None, 40, 1980, False)
        beside = None if task.baseline is None else replace(timing, median_us=10.0)
        ratio = None if task.baseline is None else Speedup("measured", 10 / us, (9.9 / us, 10.1 / us))
        metrics = tuple(replace(one, timing=timing, beside=beside, speedup=ratio) for one in made.metrics)
        return replace(made, metrics=metrics)


def test_the_fastest_of_many_is_timed_again_in_a_fresh_process(
    load: Load, scale: str, scripted: Make, judgement
) -> None:
    answer = Measuring(judgement, {"us5": 6.0})
    session, worker = scripted(answer)
    answer.worker = worker
    result = session.optimize(load(scale), "make it faster", suggesters=[Proposer("us8", "us5", "us7")])
    assert worker.renewed == 1
    assert words(result.candidates) == ["us5", "us7", "us8"]
    assert result.best == 0
    best = result.candidates[0].verdict
    assert best.timing is not None
    assert best.timing.median_us == 6.0
    assert best.speedup is not None
    assert best.speedup.median == pytest.approx(10 / 6)
    assert any("fresh process" in note for note in result.notes)


def test_one_that_was_only_lucky_gives_way_to_the_next_which_is_timed_again_too(
    load: Load, scale: str, scripted: Make, judgement
) -> None:
    answer = Measuring(judgement, {"us5": 9.0})
    session, worker = scripted(answer)
    answer.worker = worker
    result = session.optimize(load(scale), "make it faster", suggesters=[Proposer("us8", "us5", "us7")])
    assert worker.renewed == 2
    assert words(result.candidates) == ["us7", "us8", "us5"]


def test_a_single_measured_candidate_is_timed_again_and_predicted_times_are_not(
    load: Load, scale: str, scripted: Make, judgement
) -> None:
    answer = Measuring(judgement, {})
    session, answer.worker = scripted(answer)
    session.optimize(load(scale), "make it faster", suggesters=[Proposer("us5")])
    assert answer.worker.renewed == 1
    session, worker = scripted(lambda task: judgement(task, us=5.0))
    session.optimize(load(scale), "make it faster", suggesters=[Proposer("us5", "us6")])
    assert worker.renewed == 0


def test_accepted_come_first_by_the_metric_then_the_rejected(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, _ = scripted(answer)
    proposer = Proposer("60", "wrong", "20", "crash", "150", "race", "40")
    result = session.optimize(load(scale), PROMPT, suggesters=[proposer])
    assert words(result.candidates)[:4] == ["20", "40", "60", "race"]
    assert set(words(result.candidates)[4:]) == {"wrong", "crash", "150"}
    assert result.best == 0
    assert [one.verdict.accepted for one in result.candidates] == [True] * 3 + [False] * 4
    assert result.objective.metric == "global_bytes"
    assert result.baseline.counters is not None
    assert result.baseline.counters.global_load_sectors == SECTORS


def test_a_predicted_gain_is_promising_and_ranked_below_nothing_better(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, _ = scripted(answer)
    result = session.optimize(load(scale), "make it faster", suggesters=[Proposer("us8", "us5", "us20")])
    assert words(result.candidates) == ["us5", "us8", "us20"]
    assert [one.verdict.accepted for one in result.candidates] == [None, None, False]
    assert result.best == 0


def test_an_undecided_gain_is_neither_best_nor_rejected(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, _ = scripted(answer)
    result = session.optimize(load(scale), "make it faster", suggesters=[Proposer("us20", "us9", "us5")])
    assert words(result.candidates) == ["us5", "us9", "us20"]
    assert [one.verdict.undecided for one in result.candidates] == [False, True, False]
    alone = session.optimize(load(scale), "make it faster", suggesters=[Proposer("us9")])
    assert (alone.best, alone.candidates[0].verdict.accepted) == (None, None)


def test_nothing_worth_taking_has_no_best(load: Load, scale: str, scripted: Make, answer: Callable[..., Any]) -> None:
    session, _ = scripted(answer)
    result = session.optimize(load(scale), PROMPT, suggesters=[Proposer("wrong", "300")])
    assert result.best is None
    assert len(result.candidates) == 2
    nothing = session.optimize(load(scale), PROMPT, suggesters=[Proposer()])
    assert (nothing.best, nothing.candidates) == (None, ())
    assert "No suggestion applies" in nothing.notes[0]


def test_where_an_author_says_why_it_proposed_nothing_no_other_reason_is_given(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, _ = scripted(answer)
    silent = Proposer()
    silent.notes = ("Nobody could be asked.",)  # type: ignore[attr-defined]
    assert session.optimize(load(scale), PROMPT, suggesters=[silent]).notes == ("Nobody could be asked.",)


def test_equal_candidates_are_judged_once_and_the_baseline_never(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, worker = scripted(answer)
    told: list[Judged] = []
    result = session.optimize(
        load(scale), PROMPT, suggesters=[Proposer("40", "40", ""), Proposer("40")], on_judged=told.append
    )
    assert words(result.candidates) == ["40"]
    assert words(told) == ["40"]
    assert len(worker.tasks) == 2


def test_one_source_with_two_launches_is_two_candidates(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    class Blocks:
        name = "blocks"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            for block in ("256", "128", "64", "128"):
                yield Candidate("test:blocks", block, request.kernel, replace(request.contract, block=(block,)))

    session, worker = scripted(answer)
    result = session.optimize(load(scale), PROMPT, suggesters=[Blocks()])
    assert sorted(one.candidate.why for one in result.candidates) == ["128", "64"]
    assert [task.candidate.contract.block for task in worker.tasks] == [("256",), ("128",), ("64",)]


def test_a_suggester_is_told_what_is_known_and_may_judge_itself(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    seen: dict[str, Any] = {}

    class Careful:
        name = "careful"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            seen["verdict"] = request.verdict
            seen["ptx"] = request.compiled.binary
            first = request.judge(changed(request.kernel, "80"))
            second = request.judge(changed(request.kernel, "30"))
            seen["again"] = request.judge(changed(request.kernel, "80")) is first
            seen["same"] = request.judge(changed(request.kernel, "")).verdict
            seen["versions"] = words(request.versions())
            yield second.candidate

    session, worker = scripted(answer)
    result = session.optimize(load(scale), PROMPT, suggesters=[Careful()])
    assert seen["verdict"] == result.baseline
    assert seen["ptx"] == result.baseline.binary
    assert seen["again"] is True
    assert (seen["same"].accepted, seen["same"].reasons) == (False, ("the same as the baseline",))
    assert seen["versions"] == ["30", "80"]
    assert words(result.candidates) == ["30", "80"]
    assert len(worker.tasks) == 3


def test_the_most_candidates_and_stop_end_a_search_early(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    session, _ = scripted(answer)
    proposer = Proposer(*(str(number) for number in range(10, 60)))
    result = session.optimize(load(scale), PROMPT, max_candidates=3, suggesters=[proposer])
    assert len(result.candidates) == 3
    assert proposer.asked == 4
    assert "3 candidates" in result.notes[0]
    told: list[Judged] = []
    result = session.optimize(
        load(scale), PROMPT, suggesters=[proposer], on_judged=told.append, stop=lambda: len(told) >= 2
    )
    assert len(result.candidates) == 2
    assert result.best == 0
    assert result.notes[0] == "stopped: 2 judged, best is #1"
    result = session.optimize(load(scale), PROMPT, suggesters=[proposer], budget_s=1e-9)
    assert len(result.candidates) == 1
    assert "time that was allowed" in result.notes[0]


def test_a_suggester_with_a_bug_costs_only_itself(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    class Buggy:
        name = "buggy"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            yield changed(request.kernel, "70")
            raise ZeroDivisionError("oops")

    session, _ = scripted(answer)
    result = session.optimize(load(scale), PROMPT, suggesters=[Buggy(), Proposer("50")])
    assert words(result.candidates) == ["50", "70"]
    assert result.notes == ("buggy failed: ZeroDivisionError: oops",)


@pytest.mark.parametrize("swallow", [False, True])
def test_a_failing_reference_ends_the_search_even_where_a_suggester_hides_it(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any], swallow: bool
) -> None:
    class Judging:
        name = "judging"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            try:
                request.judge(changed(request.kernel, "reference"))
            except KernelmateError:
                if not swallow:
                    raise
            yield changed(request.kernel, "50")

    session, _ = scripted(answer)
    with pytest.raises(ReferenceFailed):
        session.optimize(load(scale), PROMPT, suggesters=[Judging()])


@pytest.mark.parametrize("word", ["wrong", "crash", "race"])
def test_a_kernel_that_is_itself_wrong_is_not_optimised(
    load: Load, scale: str, scripted: Make, answer: Callable[..., Any], word: str
) -> None:
    session, _ = scripted(answer)
    proposer = Proposer("50")
    wrong = load(scale.replace("int i =", f"/* {word} */ int i ="))
    result = session.optimize(wrong, PROMPT, suggesters=[proposer])
    assert (result.best, result.candidates, proposer.asked) == (None, (), 0)
    assert ("could not be judged" if word == "crash" else "not right") in result.notes[0]


def test_a_kernel_that_does_not_compile_is_not_optimised(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    result = session.optimize(load(scale.replace("a * x[i]", "a * q[i]")), PROMPT, suggesters=[Proposer("50")])
    assert (result.best, result.candidates) == (None, ())
    assert "does not compile" in result.notes[0]
    assert worker.tasks == []


def test_an_empty_prompt_is_told_before_anything_is_judged(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    with pytest.raises(UsageError):
        session.optimize(load(scale), "  ", suggesters=[])
    assert worker.tasks == []


def test_a_candidate_must_be_accepted_at_every_instance(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    text = scale.replace("__global__", "template <int N> __global__")
    text = text.replace("block = 256", 'block = 256\n// instances = ["scale<1>", "scale<2>"]').replace(
        "a * x", "N * a * x"
    )

    def answer(task: JudgeTask) -> Judgement:
        worse = task.candidate.compiled.instance == "scale<2>" and "/* half */" in task.candidate.unit.text
        return judgement(task, sectors=SECTORS if task.baseline is None else 50, correct=not worse)

    session, _ = scripted(answer)
    result = session.optimize(load(text), PROMPT, suggesters=[Proposer("half", "whole")])
    assert [(one.candidate.why, one.verdict.instance) for one in result.candidates] == [
        ("Because of whole.", "scale<1>"),
        ("Because of half.", "scale<2>"),
    ]
    assert [one.verdict.accepted for one in result.candidates] == [True, False]


def test_a_candidate_that_hangs_is_judged_at_no_further_instance(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    text = scale.replace("__global__", "template <int N> __global__")
    text = text.replace("block = 256", 'block = 256\n// instances = ["scale<1>", "scale<2>"]').replace(
        "a * x", "N * a * x"
    )

    def answer(task: JudgeTask) -> Judgement | TaskDeath:
        if task.baseline is not None:
            return TaskDeath("hang", "cases", "No verdict within 1 s.")
        return judgement(task, sectors=SECTORS)

    session, worker = scripted(answer)
    result = session.optimize(load(text), PROMPT, suggesters=[Proposer("half")])
    assert [task.candidate.compiled.instance for task in worker.tasks if task.baseline is not None] == ["scale<1>"]
    assert [one.verdict.accepted for one in result.candidates] == [False]


class Writer:
    """An author that is no recipe: the kernel with a text put before it."""

    name = "writer"

    def __init__(self, author: str, text: str) -> None:
        self.author, self.text = author, text

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        start = request.kernel.start
        kernel = apply_edits(request.kernel, [(start, start, self.text)])
        yield Candidate(self.author, "It is better.", kernel, contract_for(kernel))


def test_what_a_model_wrote_is_screened_before_it_is_compiled(scripted: Make, load: Load, scale: str) -> None:
    session, worker = scripted()
    hostile = '#include "/etc/passwd"\n'
    found = session.optimize(load(scale), "faster", suggesters=[Writer("local:small", hostile)])
    (judged,) = found.candidates
    assert [finding.code for finding in judged.verdict.findings] == ["forbidden-source"]
    assert (judged.verdict.compiled, judged.verdict.accepted, judged.verdict.timing) == (False, False, None)
    assert judged.verdict.predicted is None
    assert len(worker.tasks) == 1, "only the baseline was judged"
    assert found.best is None


def test_a_models_helper_is_judged_like_any_other(scripted: Make, load: Load, scale: str) -> None:
    session, worker = scripted()
    helper = "__device__ float one() { return 1.0f; }\n"
    session.optimize(load(scale), "faster", suggesters=[Writer("claude:x", helper)])
    assert len(worker.tasks) == 2


def test_a_speedup_beyond_what_changed_is_a_warning_and_no_rejection(
    load: Load, scale: str, scripted: Make, judgement
) -> None:
    answer = Measuring(judgement, {})
    session, worker = scripted(answer)
    answer.worker = worker
    base = load(scale)
    (verdict,) = session.compare(base, load(scale + "/* us1 */", "faster.cu")).candidate
    assert [(f.code, f.severity) for f in verdict.findings] == [("suspicious-speedup", "warning")]
    assert "10 times faster, where fewer bytes and instructions explain 1 times" in verdict.findings[0].message
    assert verdict.accepted is True
    (slower,) = session.compare(base, load(scale + "/* us8 */", "slower.cu")).candidate
    assert slower.findings == ()


@pytest.mark.parametrize(
    ("author", "refused", "builds"),
    [
        ("recipe:unroll", False, [0, 1]),
        ("test:proposer", False, [1, 1]),
        ("recipe:unroll", True, [0, 1]),
        ("test:proposer", True, [1]),
    ],
)
def test_of_built_in_rewrites_the_best_alone_is_judged_in_variants_of_its_build(
    author: str, refused: bool, builds: list[int], load: Load, scale: str, scripted: Make, answer: Callable[..., Any]
) -> None:
    """Also where the reference refuses the inputs on which the best is judged again."""

    class Unassigned:
        name = "unassigned"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            end = request.kernel.end - 1
            text = "/* us4 */ float t; if (n > 5) t = x[0]; if (n == -7) y[0] = t;"
            kernel = apply_edits(request.kernel, [(end, end, text)])
            yield Candidate(author, "", kernel, contract_for(kernel))

    def measured(task: JudgeTask) -> Judgement:
        if refused and task.seed != 7:
            raise ReferenceFailed("The reference raised.")
        judgement = answer(task)
        metrics = [replace(one, timing=replace(one.timing, kind="measured")) for one in judgement.metrics]
        return replace(judgement, metrics=tuple(metrics))

    session, worker = scripted(measured)
    session.optimize(load(scale), "make it faster", suggesters=[Unassigned()])
    tasks = [task for task in worker.tasks if "us4" in task.candidate.unit.text and not task.glance]
    assert [len(task.twins) for task in tasks] == builds
