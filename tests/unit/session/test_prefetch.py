"""Versions that are expected next are compiled and launched ahead, with the same results."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.compiler.process import CompilerProcess
from kernelmate.decide.objective import read_objective
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Candidate, Judged, JudgeTask, Kernel
from kernelmate.session.candidates import content_key
from kernelmate.session.judging import JudgingContext
from kernelmate.session.prefetch import EarlyCandidates
from kernelmate.session.preparing import KernelPreparer, PreparedVersion
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.results import traced_text


def variants(kernel: Kernel, count: int) -> list[Kernel]:
    """Versions that differ in what they compute, lest they share a verdict."""
    places = [(kernel.end - 1, kernel.end - 1, f" if (n == -{number + 1}) y[0] = 1.0f;\n") for number in range(count)]
    return [apply_edits(kernel, [place]) for place in places]


class Looking:
    """Expects all of its versions, then evaluates them quickly."""

    name = "looking"

    def __init__(self, count: int, *, expecting: bool, author: str = "recipe:x") -> None:
        self._count, self._expecting, self._author = count, expecting, author
        self.seen: list[Judged] = []

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        found = [Candidate(self._author, "", one, request.contract) for one in variants(request.kernel, self._count)]
        assert request.expect is not None
        assert request.quick_evaluation is not None
        if self._expecting:
            for one in found:
                request.expect(one)
        self.seen = [request.quick_evaluation(one) for one in found]
        return
        yield


@pytest.fixture
def one_child() -> Iterator[CompilerProcess]:
    compiler = CompilerProcess(children=1)
    yield compiler
    compiler.close()


@pytest.fixture
def compiled_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    prepare = KernelPreparer.prepare_candidate

    def noted(self: KernelPreparer, kernel: Kernel, *rest: object) -> PreparedVersion:
        texts.append(kernel.unit.text)
        return prepare(self, kernel, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelPreparer, "prepare_candidate", noted)
    return texts


@pytest.mark.parametrize("expecting", [True, False])
def test_a_quick_evaluation_is_the_same_whether_it_was_expected(
    expecting: bool, scripted: Callable, load: Callable[..., Kernel], scale: str, compiled_texts: list[str]
) -> None:
    session, worker = scripted(backend="emulator")
    looking = Looking(4, expecting=expecting)
    session.optimize(load(scale), "make it faster", suggesters=(looking,))
    glances = [task for task in worker.tasks if task.glance]
    assert [task.candidate.unit.text for task in glances] == sorted(compiled_texts) == sorted(set(compiled_texts))
    assert [one.verdict.correct for one in looking.seen] == [True] * 4
    begun = [task for task in worker.foreseen if task.glance]
    assert all(task in glances for task in begun)
    if not expecting:
        assert begun == []


def test_what_is_compiled_when_it_is_not_yet_looked_at_is_begun(
    scripted: Callable, load: Callable[..., Kernel], scale: str, one_child: CompilerProcess
) -> None:
    session, worker = scripted(backend="emulator", compiler=one_child)
    looking = Looking(3, expecting=True)

    class Patient(Looking):
        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            assert request.expect is not None
            first, second, third = (
                Candidate(self._author, "", one, request.contract) for one in variants(request.kernel, 3)
            )
            for one in (second, third, first):  # one child compiles: the others are ready once the first is
                request.expect(one)
            assert request.quick_evaluation is not None
            request.quick_evaluation(first)
            self.begun = [task.candidate.unit.text for task in worker.foreseen]
            self.wanted = [second.kernel.unit.text, third.kernel.unit.text]
            return
            yield

    looking = Patient(3, expecting=True)
    session.optimize(load(scale), "make it faster", suggesters=(looking,))
    assert looking.begun == looking.wanted


@pytest.mark.parametrize(("prompt", "author"), [("use fewer registers", "recipe:x"), ("make it faster", "model")])
def test_nothing_is_begun_that_is_known_once_it_is_compiled_or_was_not_screened(
    prompt: str, author: str, scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    session, worker = scripted(backend="emulator")
    session.optimize(load(scale), prompt, suggesters=(Looking(3, expecting=True, author=author),))
    assert worker.foreseen == []


def test_a_compiler_that_is_gone_is_told_where_the_version_is_asked_for(
    scripted: Callable, load: Callable[..., Kernel], scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, worker = scripted(backend="emulator")

    def gone(*_: object) -> PreparedVersion:
        raise CompilerUnavailable("NVRTC is gone.")

    monkeypatch.setattr(KernelPreparer, "prepare_candidate", gone)
    with pytest.raises(CompilerUnavailable, match="gone"):
        session.optimize(load(scale), "make it faster", suggesters=(Looking(2, expecting=True),))
    assert [task.glance for task in worker.tasks if isinstance(task, JudgeTask)] == [False]


@pytest.mark.parametrize(("prompt", "counts"), [("make it faster", False), ("reduce global memory traffic", True)])
def test_on_a_gpu_a_quick_evaluation_times_the_headline_shortly_and_makes_one_small_case(
    prompt: str, counts: bool, scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    session, _ = scripted(backend="emulator")
    text = scale.replace("{ n = 1024 }, { n = 1 }", "{ n = 1024 }, { n = 700 }, { n = 3 }, { n = 5 }")
    context = replace(session._context(load(text), (), None), backend="cuda")
    (baseline,) = context.baselines()
    context.quick_evaluation(
        context.preparer.prepare(context.kernel, context.contract, None), baseline, read_objective(prompt)
    )
    task = context.worker.tasks[-1]
    assert task.glance
    assert task.sizes == ({"n": 1024}, {"n": 3})
    assert 0 < task.timing_budget_s < context.timing_budget_s
    assert task.count is counts
    assert not task.own_sizes
    assert context.worker.timeouts[-1] == context.timeout_s


def test_a_quick_evaluation_may_have_a_time_limit_of_its_own(
    scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    session, worker = scripted(backend="emulator")
    context = replace(session._context(load(scale), (), None), quick_timeout_s=6.0)
    (baseline,) = context.baselines()
    context.quick_evaluation(baseline.prepared, baseline, read_objective("make it faster"))
    context.candidates(context.kernel, context.contract, (baseline,), None)
    assert worker.timeouts == [context.timeout_s, 6.0, context.timeout_s]


def test_what_was_evaluated_quickly_is_not_compiled_again_to_be_judged(
    scripted: Callable, load: Callable[..., Kernel], scale: str, compiled_texts: list[str]
) -> None:
    class Thorough(Looking):
        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            yield from super().propose(request)
            yield from (one.candidate for one in self.seen)

    session, worker = scripted(backend="emulator")
    session.optimize(load(scale), "make it faster", suggesters=(Thorough(2, expecting=True),))
    assert len(compiled_texts) == 2
    assert len([task for task in worker.tasks if task.baseline is not None]) == 4


def test_a_version_that_will_be_judged_in_full_is_begun_once_it_is_compiled(
    scripted: Callable, load: Callable[..., Kernel], scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, worker = scripted(backend="emulator")
    begun: list[str] = []
    monkeypatch.setattr(
        JudgingContext, "begin_judgement", lambda self, prepared, baseline: begun.append(prepared.kernel.unit.text)
    )

    class Told:
        name = "told"

        def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
            found = [Candidate("recipe:x", "", one, request.contract) for one in variants(request.kernel, 2)]
            assert request.expect is not None
            for one in found:
                request.expect(one, full=True)
            yield from found

    session.optimize(load(scale), "make it faster", suggesters=(Told(),))
    judged = [task.candidate.unit.text for task in worker.tasks if not task.glance]
    assert sorted(begun) == sorted(judged[1:3])
    assert worker.foreseen == []


def test_the_first_candidates_are_compiled_while_the_baseline_is_judged(
    scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    (Path.cwd() / "reference.py").write_text("def scale(x, a):\n    return a * x\n")
    session, worker = scripted(backend="emulator")
    kernel = load(scale)
    announced: list[JudgeTask] = []
    worker.trace = lambda task, timeout_s: traced_text(task.candidate.contract, Path(task.directory))
    worker.announce = announced.append
    context = replace(session._context(kernel, (), None), backend="cuda")
    early = EarlyCandidates(context, read_objective("make it faster"), Synthesis)
    (trial,) = context.baselines(begin=early.begin)
    prefetcher = early.prefetcher()
    assert prefetcher is not None
    (first, *_) = Synthesis().propose(
        SuggestRequest(
            kernel, context.contract, trial.prepared.compiled, trial.verdict, read_objective("make it faster"),
            context.target, judge=lambda _: None, versions=tuple, stop=lambda: False, trace=lambda: (context.trace(trial.prepared), ""),
        )
    )  # fmt: skip
    prepared = prefetcher.prepared(content_key(first.kernel, first.contract), first.kernel, first.contract, None)
    while prepared.version not in [task.candidate for task in announced]:
        time.sleep(0.01)  # a future has its result before its callbacks are called
    early.close()
    assert prepared.findings == ()
    assert all(task.baseline == trial.prepared.version and not task.glance for task in announced)


def test_a_reference_that_cannot_be_traced_begins_nothing(
    scripted: Callable, load: Callable[..., Kernel], scale: str
) -> None:
    session, _ = scripted(backend="emulator")
    context = session._context(load(scale), (), None)
    (trial,) = context.baselines()
    for suggester in (Synthesis, None):
        early = EarlyCandidates(context, read_objective("make it faster"), suggester)
        early.begin(trial.prepared)
        assert early.prefetcher() is None
        early.close()


def test_the_suggesters_are_loaded_while_the_baseline_is_judged() -> None:
    """They import the schedules, which takes a second that no search should wait for before its baseline."""
    code = (
        "import sys\n"
        "from kernelmate.session.prefetch import first_writer\n"
        "from kernelmate.source import find_kernels, text_unit\n"
        "(kernel,) = find_kernels(text_unit('__global__ void k(float* x) { x[0] = 1; }'))\n"
        "loaded = [sorted(one for one in sys.modules if one.startswith('kernelmate.synthesis'))]\n"
        "writer = first_writer(kernel, None)\n"
        "loaded.append(sorted(one for one in sys.modules if one.startswith('kernelmate.synthesis')))\n"
        "assert loaded[0] == loaded[1] and 'kernelmate.suggest.synthesis' not in sys.modules\n"
        "assert writer().name == 'synthesis'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
