"""Judgements carried in a document and made again: what is needed is there, and each promise gets its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmate.errors import SourceError, UsageError
from kernelmate.records import (
    Judgement,
    JudgeTask,
    Kernel,
    LaunchShape,
    ObjectiveResult,
    PortableFile,
    PortableJudgement,
    SizeMetrics,
    Speedup,
    Timing,
)
from kernelmate.report.json import dumps, optimization_json, verdicts_json
from kernelmate.session import read_carried
from kernelmate.session.confirming import outcome_of
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.recipes import Recipes

HEADER = '#include "part.cuh"\n'


def measured(us: float) -> Timing:
    return Timing("measured", us, (us * 0.99, us * 1.01), us, us, 100, 1980, False)


@pytest.fixture
def promised(
    load: Callable[..., Kernel], scale: str, scripted: Callable[..., Any], judgement: Any
) -> Callable[..., PortableJudgement]:
    """Returns a function that gives the portable part of `optimize --json` for a search with a predicted gain."""

    def carry(
        text: str = scale, prompt: str = "make it faster", gain: float = 3.0, **settings: Any
    ) -> PortableJudgement:
        kernel = load(text)

        def answer(task: JudgeTask) -> Judgement:
            return judgement(task, us=10.0 if task.baseline is None else 10.0 / gain)

        session, _ = scripted(answer, history=False, **settings)
        found = session.optimize(kernel, prompt, max_candidates=2, suggesters=(Recipes(),))
        assert found.candidates
        return read_carried(dumps(optimization_json(found, session.given(kernel))), "promising.json")

    return carry


@pytest.fixture
def gpu(scripted: Callable[..., Any], judgement: Any) -> Callable[..., Any]:
    """A session whose worker measures: the kernel takes 10 us, its versions what the test says."""

    def make(us: float, correct: bool | None = True) -> Any:
        def answer(task: JudgeTask) -> Judgement:
            own = task.baseline is None
            made = judgement(task, correct=True if own else correct)
            time = measured(10.0 if own else us)
            beside = None if own else measured(10.0)
            ratio = None if own else Speedup("measured", 10.0 / us, (9.8 / us, 10.2 / us))
            metrics = tuple(
                SizeMetrics(one.size, LaunchShape((1, 1, 1), (256, 1, 1)), one.counters, time, None, beside, ratio)
                for one in made.metrics
            )
            return replace(made, metrics=metrics)

        return scripted(answer, history=False)

    return make


def test_a_document_carries_all_that_a_judgement_rests_on(promised) -> None:
    Path("reference.py").write_text("def scale(x, a):\n    return x * a\n")
    carried = promised(std="c++20", defines=("WIDE=1",))
    given = carried.given
    assert (given.kernel, given.options.std, given.options.defines) == ("scale", "c++20", ("WIDE=1",))
    assert given.contract == contract_for(find_kernels(text_unit(given.source))[0])
    assert [file.path for file in given.files] == ["reference.py"]
    assert carried.seed == 7
    assert carried.objective is not None
    assert carried.objective.prompt == "make it faster"
    assert all(promise.contract.sizes == given.contract.sizes for promise in carried.promises)


def test_headers_of_the_folder_come_along(promised, scale) -> None:
    Path("part.cuh").write_text("#pragma once\n__device__ inline float half_of(float x) { return x / 2; }\n")
    carried = promised(HEADER + scale.replace("a * x[i]", "a * half_of(x[i])"))
    assert [file.path for file in carried.given.files] == ["part.cuh"]


def test_the_folder_of_a_header_found_by_its_name_becomes_an_include_path(promised, scale, monkeypatch) -> None:
    shared = Path("shared").resolve()
    shared.mkdir()
    (shared / "part.cuh").write_text("#pragma once\n__device__ inline float half_of(float x) { return x / 2; }\n")
    Path(".git").mkdir()
    Path("kernels").mkdir()
    monkeypatch.chdir("kernels")
    carried = promised(HEADER + scale.replace("a * x[i]", "a * half_of(x[i])"))
    assert carried.given.options.include_paths == (str(shared),)


def test_what_is_measured_faster_is_confirmed(promised, gpu) -> None:
    session, worker = gpu(5.0)
    confirmed = session.confirm(promised())
    assert [one.outcome for one in confirmed.confirmations] == ["confirmed"] * len(confirmed.confirmations)
    assert confirmed.confirmations
    assert confirmed.baseline.timing == measured(10.0)
    assert confirmed.timing is not None
    assert confirmed.timing.kind == "predicted"
    assert worker.tasks[0].candidate.contract.sizes == confirmed.given.contract.sizes


@pytest.mark.parametrize(("us", "correct", "outcome"), [(20.0, True, "refuted"), (10.0, True, "undecided"), (5.0, False, "refuted")])  # fmt: skip
def test_what_is_not_is_refuted_or_left_undecided(promised, gpu, us, correct, outcome) -> None:
    session, _ = gpu(us, correct)
    confirmed = session.confirm(promised())
    assert {one.outcome for one in confirmed.confirmations} == {outcome}


def test_only_what_a_gpu_could_settle_is_judged_unless_all_are_asked_for(promised, gpu) -> None:
    slower = promised(gain=0.2)
    session, worker = gpu(5.0)
    assert session.confirm(slower).confirmations == ()
    assert len(worker.tasks) == 1
    assert len(session.confirm(slower, everything=True).confirmations) == len(slower.promises)


def test_undecided_predictions_are_judged_too(promised, gpu) -> None:
    undecided = promised(gain=1.002)
    assert all((promise.accepted, promise.objective.met) == (None, None) for promise in undecided.promises)
    session, _ = gpu(5.0)
    assert {one.outcome for one in session.confirm(undecided).confirmations} == {"confirmed"}


def test_where_the_folder_is_not_there_what_came_along_is_put_into_one(promised, gpu, tmp_path) -> None:
    Path("reference.py").write_text("def scale(x, a):\n    return x * a\n")
    carried = promised()
    elsewhere = replace(carried, given=replace(carried.given, directory=str(tmp_path / "nowhere")))
    session, worker = gpu(5.0)
    assert session.confirm(elsewhere).confirmations
    folder = Path(worker.tasks[0].directory)
    assert folder != Path.cwd()
    assert worker.tasks[0].candidate.unit.text == carried.given.source


def test_a_carried_path_cannot_lead_out_of_its_folder(promised, gpu, tmp_path) -> None:
    carried = promised()
    files = (PortableFile("../../evil.py", "x"),)
    given = replace(carried.given, directory=str(tmp_path / "nowhere"), files=files)
    session, _ = gpu(5.0)
    with pytest.raises(UsageError, match="outside of its folder"):
        session.confirm(replace(carried, given=given))


def test_a_kernel_judged_by_itself_is_judged_again(load, scale, scripted, judgement, gpu) -> None:
    kernel = load(scale)
    session, _ = scripted(history=False)
    document = dumps(verdicts_json(session.bench(kernel), session.given(kernel, ({"n": 33},))))
    carried = read_carried(document, "bench.json")
    assert carried.promises == ()
    assert carried.given.contract.sizes == ({"n": 33},)
    found = gpu(5.0)[0].confirm(carried)
    assert found.baseline.timing == measured(10.0)


def test_a_comparison_carries_its_candidate_and_its_prompt(load, scale, scripted, gpu) -> None:
    kernel = load(scale)
    changed = load(scale.replace("a * x[i]", "x[i] * a"), "new.cu")
    session, _ = scripted(history=False)
    verdicts = session.compare(kernel, changed, "make it faster").candidate
    given = session.given(kernel)
    document = dumps(verdicts_json(verdicts, given, changed, given.contract, "make it faster"))
    carried = read_carried(document, "compare.json")
    assert carried.promises[0].source == changed.unit.text
    found = gpu(5.0)[0].confirm(carried)
    assert [one.outcome for one in found.confirmations] == ["confirmed"]
    assert found.objective is not None
    assert found.objective.metric == "time"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "not a document of kernelmate"),
        ('{"schema": 2}', "not a document of kernelmate"),
        ('{"schema": 1, "error": {"message": "no such file"}}', "says why a command stopped: no such file"),
        ('{"schema": 1, "verdicts": []}', "does not contain the kernel"),
        ('{"schema": 1, "verdicts": [], "given": {"file": 3}}', "given is invalid"),
    ],
)
def test_what_carries_nothing_is_told(text, said) -> None:
    with pytest.raises(UsageError) as raised:
        read_carried(text, "x.json")
    assert said in raised.value.message
    assert raised.value.hint


def test_times_that_were_not_finite_are_left_out(promised) -> None:
    carried = promised()
    document = {
        "schema": 1,
        "verdicts": [{"timing": {"kind": "predicted", "median_us": None, "ci95_us": [None, None]}, "seed": 3}],
        "given": json.loads(dumps(verdicts_json((), carried.given)))["given"],
        "candidate": None,
    }
    assert read_carried(json.dumps(document), "x.json").timing is None


def test_a_version_that_lost_its_kernel_is_told(promised, gpu) -> None:
    carried = promised()
    gone = replace(carried.promises[0], source="__global__ void other() {}\n")
    with pytest.raises(SourceError, match="scale is gone"):
        gpu(5.0)[0].confirm(replace(carried, promises=(gone,)))


def test_what_a_model_wrote_is_screened_here_too(promised, gpu) -> None:
    carried = promised()
    evil = carried.promises[0].source.replace("{", '{ asm volatile("trap;");', 1)
    evil = '#include "/etc/passwd"\n' + evil
    promise = replace(carried.promises[0], author="local:some-model", source=evil)
    session, worker = gpu(5.0)
    found = session.confirm(replace(carried, promises=(promise,)))
    assert [one.outcome for one in found.confirmations] == ["refuted"]
    assert found.confirmations[0].verdict.findings[0].code == "forbidden-source"
    assert len(worker.tasks) == 1


def test_a_counted_objective_that_was_not_met_is_refuted_and_not_undecided(load, scale, scripted) -> None:
    (verdict,) = scripted(history=False)[0].bench(load(scale))
    even = Speedup("measured", 1.0, (0.9, 1.1))
    registers = ObjectiveResult("registers", "counted", 20.0, 24.0, False)
    assert outcome_of(replace(verdict, accepted=False, speedup=even, objective=registers)) == "refuted"
    assert outcome_of(replace(verdict, accepted=False, speedup=even, objective=None)) == "undecided"
