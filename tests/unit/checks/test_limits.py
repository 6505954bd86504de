"""Kernels too large, too long or too greedy to be judged; sizes and references that cannot be used."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kernelmate.backends import processes
from kernelmate.backends.base import EmulationTooLarge
from kernelmate.checks.cases import MOST_SUGGESTED
from kernelmate.checks.judge import judge
from kernelmate.checks.size_plan import needed_bytes
from kernelmate.compiler import find_target
from kernelmate.errors import LaunchTooLarge, ReferenceFailed
from kernelmate.records import JudgeTask
from tests.unit.checks.judging import DOUBLE, body, errors, honest, task_of, writes_zeros, wrong_everywhere


def test_a_candidate_may_take_so_many_times_the_baselines_instructions(python_backend, contract_of, tmp_path) -> None:
    def takes(longest):
        def counted(x, y, n, schedule):
            honest(x, y, n, schedule)
            return {"longest_thread": longest}

        return counted

    contract = contract_of(DOUBLE)
    for longest, limit in ((7, 500_000), (3_000, 3_000_000), (10**6, 20_000_000)):
        baseline = python_backend.version(contract, body(takes(longest)), f"baseline{longest}")
        candidate = python_backend.version(contract, body(takes(1)), f"candidate{longest}")
        task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), longest, str(tmp_path))
        judge(task, python_backend, lambda *_: None, lambda *_: None)
        assert {run.step_limit for run in python_backend.runs[baseline.compiled.binary]} == {20_000_000}
        runs = python_backend.runs[candidate.compiled.binary]
        assert {run.step_limit for run in runs} == {limit}
        assert all((f"longest takes {longest}" in run.limited_by) is (limit < 20_000_000) for run in runs)


def test_sizes_of_our_own_are_left_out_when_half_the_time_is_gone(
    python_backend, contract_of, tmp_path, monkeypatch
) -> None:
    clock = itertools.count(0, 10)
    monkeypatch.setattr("kernelmate.checks.judge.time.monotonic", lambda: float(next(clock)))
    judged = {}
    for limit in (None, 59.0, 10_000.0):
        version = python_backend.version(contract_of(DOUBLE), body(honest), f"late{limit}")
        task = JudgeTask(
            "emulator", find_target(None), version, None, None, (), 7, str(tmp_path), timeout_s=limit
        )  # fmt: skip
        judged[limit] = judge(task, python_backend, lambda *_: None, lambda *_: None)
    listed = [case for case in judged[59.0].cases if case.origin == "contract"]
    assert len(listed) == 2
    assert all(case.correct for case in listed)
    assert len(judged[59.0].cases) == 4
    (said,) = [reason for reason in judged[59.0].reasons if "were not tried" in reason]
    assert "had taken 30 s, over half of its limit" in said
    assert "--timeout" in said
    for limit in (None, 10_000.0):
        assert len(judged[limit].cases) > 5
        assert not any("were not tried" in reason for reason in judged[limit].reasons)


def too_large_from(limit, longest=None):
    def large(x, y, n, schedule):
        if n >= limit:
            raise EmulationTooLarge("the launch takes over 5 thread-instructions.", 5, longest_thread=longest)
        honest(x, y, n, schedule)

    return large


def test_a_kernel_too_large_for_the_emulator_is_refused_with_what_to_do(verdict_on) -> None:
    with pytest.raises(LaunchTooLarge, match=r"At n = 1000 the launch takes over 5 thread-instructions") as caught:
        verdict_on(body(too_large_from(1000)), against=False)
    assert "--size" in str(caught.value.hint)
    assert caught.value.exit_code == 3


def takes_ten(x, y, n, schedule):
    honest(x, y, n, schedule)
    return {"longest_thread": 10}


@pytest.fixture
def against_ten(python_backend, contract_of, tmp_path):
    """Judge a body against a baseline whose longest thread takes ten instructions."""

    def judged(make, block=DOUBLE):
        contract = contract_of(block)
        baseline = python_backend.version(contract, body(takes_ten), "ten")
        candidate = python_backend.version(contract, make, "large")
        task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(tmp_path))
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


def test_a_candidate_too_large_whose_threads_go_on_and_on_hangs(against_ten) -> None:
    judgement = against_ten(body(too_large_from(1000, longest=10_001)))
    assert judgement.correct is False
    assert errors(judgement) == ["hang"]
    assert "longest thread had taken 10001 of them, the baseline's takes 10" in judgement.findings[0].message


@pytest.mark.parametrize("longest", [None, 10_000])
def test_a_candidate_too_large_for_the_emulator_is_not_judged_where_nothing_says_that_it_hangs(
    against_ten, longest
) -> None:
    judgement = against_ten(body(too_large_from(1000, longest)))
    assert judgement.correct is None
    assert errors(judgement) == ["time-limit"]
    for said in ("at n = 1000", "The baseline stays within it", "--size", "instruction_limit"):
        assert said in judgement.findings[0].message


def test_what_there_is_no_memory_to_judge_is_refused_before_anything_is_drawn(verdict_on, monkeypatch) -> None:
    monkeypatch.setattr(processes, "_of_process", lambda: 1 << 20)
    block = DOUBLE.replace("{ n = 1000 }", "{ n = 1000000000 }")
    with pytest.raises(LaunchTooLarge, match=r"At n = 1000000000 judging needs about \d+ MiB") as caught:
        verdict_on(body(honest), block=block)
    assert "and 1 MiB this process may take" in str(caught.value)
    assert "memory_limit_mb" in str(caught.value.hint)


def test_memory_for_judging_counts_what_is_held_at_once(contract_of) -> None:
    one, other = (needed_bytes(contract_of(DOUBLE), {"n": n}) for n in (1 << 20, 1 << 21))
    assert other == 2 * one
    # An input and an output of float32: some twenty times their own bytes.
    assert 10 < one / (2 * 4 * (1 << 20)) < 25


def test_a_size_of_our_own_that_is_too_large_is_only_said(verdict_on) -> None:
    block = DOUBLE.replace("{ n = 1000 }, { n = 33 }", "{ n = 40 }")
    judgement = verdict_on(body(too_large_from(100)), block=block, against=False)
    assert judgement.correct is True
    assert any("not tried at n = 257: the launch takes over" in reason for reason in judgement.reasons)


def test_a_smaller_size_replaces_one_that_the_code_suggests_and_that_is_too_large(verdict_on, monkeypatch) -> None:
    monkeypatch.setattr("kernelmate.checks.size_choice.further_sizes", lambda *_: ({"n": 70_000}, {"n": 3_000}))
    judgement = verdict_on(body(too_large_from(20_000)))
    sizes = [case.size["n"] for case in judgement.cases]
    assert 70_000 not in sizes
    assert sizes[-2:] == [17_501, 3_000]
    assert not any("not tried" in reason for reason in judgement.reasons)


def test_a_suggested_size_without_a_smaller_one_beyond_the_others_is_only_said(verdict_on, monkeypatch) -> None:
    monkeypatch.setattr("kernelmate.checks.size_choice.further_sizes", lambda *_: ({"n": 70_000}, {"n": 1_040}))
    judgement = verdict_on(body(too_large_from(1_050)))
    assert judgement.correct is True
    assert [case.size["n"] for case in judgement.cases][-1] == 1_040
    assert any("not tried at n = 1095: the launch takes over" in reason for reason in judgement.reasons)


def test_a_launch_at_a_suggested_size_may_take_fewer_instructions(
    python_backend, contract_of, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("kernelmate.checks.size_choice.further_sizes", lambda *_: ({"n": 70_000},))
    contract = contract_of(DOUBLE)
    candidate, baseline = (python_backend.version(contract, body(honest), name) for name in ("candidate", "baseline"))
    judge(task_of(candidate, baseline, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    limits = {run.key[0]: run.total_limit for run in python_backend.runs[candidate.compiled.binary] if run.key}
    assert limits[(("n", 70_000),)] == MOST_SUGGESTED < limits[(("n", 1_000),)]


def test_what_cannot_be_told_from_zero_counts_neither_way(verdict_on) -> None:
    block = DOUBLE.replace('"2 * x"', '"0 * x"').replace("in float32[n]", "in float32[n] ~ uniform(1, 2)")
    judgement = verdict_on(body(writes_zeros), block=block, against=False)
    assert all(case.degenerate for case in judgement.cases)
    assert judgement.correct is None


def test_equal_seeds_give_equal_judgements_and_other_seeds_other_inputs(verdict_on) -> None:
    one, two, other = (verdict_on(body(wrong_everywhere), seed=seed) for seed in (3, 3, 4))
    assert one == two
    assert one.cases[0].first_wrong != other.cases[0].first_wrong


@pytest.mark.parametrize(
    ("reference", "says"),
    [("x[:1]", "shape"), ("x, x", "2 arrays"), ("x.nothing", "AttributeError"), ("'text'", "no array")],
)
def test_a_reference_that_fails_says_what_is_wrong_with_it(verdict_on, reference, says) -> None:
    with pytest.raises(ReferenceFailed, match=says):
        verdict_on(body(honest), block=DOUBLE.replace("2 * x", reference))


def test_a_listed_size_that_require_excludes_counts_as_failed(python_backend, contract_of, tmp_path) -> None:
    contract = contract_of(DOUBLE)
    narrowed = replace(contract, require=("n % 2 == 0",))
    task = task_of(
        python_backend.version(narrowed, body(honest), "narrow"), python_backend.version(contract, body(honest), "base"),
        tmp_path,
    )  # fmt: skip
    judgement = judge(task, python_backend, lambda *_: None, lambda *_: None)
    assert judgement.correct is False
    assert errors(judgement) == ["wrong-at-size"]
    assert "shrinking the problem" in judgement.findings[0].message
    assert [case.correct for case in judgement.cases if case.origin == "contract"] == [True, False]
    assert all(case.size["n"] % 2 == 0 for case in judgement.cases if case.origin == "own")
