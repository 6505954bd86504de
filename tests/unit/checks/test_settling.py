"""Launches use the hardest inputs on which the baseline and the reference agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernelmate.backends.base import ScalarArgument
from kernelmate.checks import input_selection
from kernelmate.checks.case_launches import Bench
from kernelmate.checks.judge import judge
from kernelmate.checks.positions import ArgumentUses
from kernelmate.records import Finding, FindingCode
from tests.unit.checks.judging import body, errors, task_of

SCALED = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "a * x + b"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
a = "float32 = 2"
b = "float32 = 3"
"""
SIGNATURE = "const float* x, float* y, int n, float a, float b"


def right(x, y, n, a, b):
    y[:] = a * x + b


def judged(python_backend, contract_of, tmp_path, candidate, baseline, block, parameters=SIGNATURE):
    contract = contract_of(block, parameters)
    theirs = None if baseline is None else python_backend.version(contract, body(baseline), "baseline")
    mine = python_backend.version(contract, body(candidate), "candidate")
    return judge(task_of(mine, theirs, tmp_path), python_backend, lambda *_: None, lambda *_: None)


def values_of(python_backend, name):
    runs = [run for runs in python_backend.runs.values() for run in runs]
    return {float(a.value) for run in runs for a in run.arguments if isinstance(a, ScalarArgument) and a.name == name}


def test_a_hard_coded_scalar_is_wrong_and_the_values_are_said(python_backend, contract_of, tmp_path) -> None:
    def hard_coded(x, y, n, a, b):
        y[:] = 2 * x + b

    judgement = judged(python_backend, contract_of, tmp_path, hard_coded, right, SCALED)
    assert errors(judgement) == ["wrong-values"]
    assert "with a = " in judgement.findings[0].message
    assert "(the contract says 2, 3)" in judgement.findings[0].message
    wrong = [case for case in judgement.cases if case.correct is False]
    assert {"contract", "own"} <= {case.origin for case in wrong}
    for case in wrong:
        assert set(case.scalars) == {"a", "b"}
        assert case.scalars["a"] != 2


def test_a_fixed_scalar_keeps_its_value(python_backend, contract_of, tmp_path) -> None:
    def hard_coded(x, y, n, a, b):
        y[:] = 2 * x + b

    block = SCALED.replace("float32 = 2", "float32 = 2 fixed")
    assert judged(python_backend, contract_of, tmp_path, hard_coded, right, block).correct is True
    assert values_of(python_backend, "a") == {2.0}
    assert len(values_of(python_backend, "b")) > 2


def test_a_scalar_on_which_baseline_and_reference_differ_stays_and_others_vary(
    python_backend, contract_of, tmp_path
) -> None:
    def own_constant(x, y, n, a, b):
        y[:] = 2 * x + b

    def other_constant(x, y, n, a, b):
        y[:] = 2 * x + 3

    assert judged(python_backend, contract_of, tmp_path, own_constant, own_constant, SCALED).correct is True
    judgement = judged(python_backend, contract_of, tmp_path, other_constant, own_constant, SCALED)
    assert errors(judgement) == ["wrong-values"]
    assert set(judgement.cases[0].scalars) == {"b"}


def test_a_disagreement_at_one_size_leaves_scalars_varied_at_others(python_backend, contract_of, tmp_path) -> None:
    def constant_at_33(x, y, n, a, b):
        y[:] = (2 if n == 33 else a) * x + b

    def hard_coded_elsewhere(x, y, n, a, b):
        y[:] = (a if n == 1000 else 2) * x + b

    judgement = judged(python_backend, contract_of, tmp_path, hard_coded_elsewhere, constant_at_33, SCALED)
    assert errors(judgement) == ["wrong-values"]
    assert {case.origin for case in judgement.cases if case.correct is False} == {"own"}
    assert judged(python_backend, contract_of, tmp_path, right, constant_at_33, SCALED).correct is True


def test_a_kernel_judged_alone_that_hard_codes_a_scalar_is_warned_about_and_right(
    python_backend, contract_of, tmp_path
) -> None:
    def hard_coded(x, y, n, a, b):
        y[:] = 2 * x + b

    judgement = judged(python_backend, contract_of, tmp_path, hard_coded, None, SCALED)
    assert judgement.correct is True
    assert [(f.code, f.severity) for f in judgement.findings] == [("wrong-values", "warning")]
    assert "`fixed`" in judgement.findings[0].message


def test_a_boundary_that_the_baseline_treats_otherwise_than_the_reference_rejects_nobody(
    python_backend, contract_of, tmp_path
) -> None:
    block = SCALED.replace("a * x + b", "np.where(x > a, x, b)")

    def at_least(x, y, n, a, b):
        y[:] = np.where(x >= a, x, b)

    def above(x, y, n, a, b):
        y[:] = np.where(x > a, x, b)

    assert judged(python_backend, contract_of, tmp_path, above, at_least, block).correct is True
    assert judged(python_backend, contract_of, tmp_path, at_least, at_least, block).correct is True
    assert errors(judged(python_backend, contract_of, tmp_path, at_least, above, block)) == ["wrong-values"]


WHOLE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "REFERENCE"
[args]
x = "in int32[n]"
y = "out int32[n]"
n = "int32"
"""
WHOLE_SIGNATURE = "const int* x, int* y, int n"


def test_integers_are_narrowed_until_baseline_and_reference_agree(python_backend, contract_of, tmp_path) -> None:
    def through_float(x, y, n):
        y[:] = x.astype(np.float32)

    def low_bits(x, y, n):
        y[:] = x & 255

    block = WHOLE.replace("REFERENCE", "x")
    arguments = (python_backend, contract_of, tmp_path)
    assert judged(*arguments, through_float, through_float, block, WHOLE_SIGNATURE).correct is True
    found = judged(*arguments, low_bits, through_float, block, WHOLE_SIGNATURE)
    assert errors(found) == ["wrong-values"]
    assert "of up to 15 bits" in found.findings[0].message


def test_positions_reach_the_last_valid_one(python_backend, contract_of, tmp_path) -> None:
    def gathers(x, y, n):
        if (x < 0).any() or (x >= n).any():
            return {"findings": (Finding(FindingCode.OUT_OF_BOUNDS_READ, "error", "reads table[x]", line=1),)}
        y[:] = np.arange(n)[x] * 2
        return None

    def few(x, y, n):
        if (x < 0).any() or (x >= n).any():
            return {"findings": (Finding(FindingCode.OUT_OF_BOUNDS_READ, "error", "reads table[x]", line=1),)}
        y[:] = np.where(x < 900, x * 2, 0)
        return None

    block = WHOLE.replace("REFERENCE", "np.arange(n)[x] * 2")
    arguments = (python_backend, contract_of, tmp_path)
    assert judged(*arguments, gathers, gathers, block, WHOLE_SIGNATURE).correct is True
    assert errors(judged(*arguments, few, gathers, block, WHOLE_SIGNATURE)) == ["wrong-values"]


def test_nan_for_an_infinity_that_no_reference_gives_is_a_note(python_backend, contract_of, tmp_path) -> None:
    block = SCALED.replace('reference = "a * x + b"\n', "")

    def plain(x, y, n, a, b):
        y[:] = a * x + b

    def compensated(x, y, n, a, b):
        y[:] = np.where(np.isinf(x), np.nan, a * x + b)

    arguments = (python_backend, contract_of, tmp_path)
    judgement = judged(*arguments, compensated, plain, block)
    assert judgement.correct is True
    assert ("nan-handling", "note") in {(f.code, f.severity) for f in judgement.findings}
    assert errors(judged(*arguments, compensated, plain, SCALED)) == ["nan-handling"]


def test_a_reference_kernel_gets_the_scalars_that_vary(python_backend, contract_of, tmp_path) -> None:
    contract = replace(contract_of(SCALED, SIGNATURE), reference="other", reference_kind="kernel")
    reference = python_backend.version(contract, body(right), "reference")

    def hard_coded(x, y, n, a, b):
        y[:] = 2 * x + b

    def verdict(candidate):
        baseline = python_backend.version(contract, body(right), "baseline")
        task = task_of(python_backend.version(contract, body(candidate), "candidate"), baseline, tmp_path)
        return judge(replace(task, reference_version=reference), python_backend, lambda *_: None, lambda *_: None)

    assert verdict(right).correct is True
    assert errors(verdict(hard_coded)) == ["wrong-values"]


def test_on_a_gpu_a_limit_is_varied_only_where_the_emulator_launches_first(
    python_backend, contract_of, tmp_path, monkeypatch
) -> None:
    block = SCALED.replace("float32 = 3", "int32 = 3").replace("{ n = 33 }", "{ n = 33 }, { n = 60000 }")
    monkeypatch.setattr(Bench, "on_hardware", True)
    monkeypatch.setattr(Bench, "seen_first", lambda _, size: size["n"] <= 1000)
    monkeypatch.setattr(input_selection, "uses_of", lambda *_: ArgumentUses(guards=frozenset({"b"})))
    contract = contract_of(block, SIGNATURE.replace("float b", "int b"))
    mine = python_backend.version(contract, body(right), "candidate")
    judge(task_of(mine, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    runs = [run for runs in python_backend.runs.values() for run in runs]
    seen = {(_scalar(run, "n"), _scalar(run, "a") != 2, _scalar(run, "b") != 3, run.wary) for run in runs}
    assert (1000, True, True, True) in seen
    assert (60000, True, False, False) in seen
    assert not any(varied and not wary for _, _, varied, wary in seen)
    assert not any(varied for n, _, varied, _ in seen if n > 1000)


def test_a_size_without_blocks_is_not_seen_first(python_backend, contract_of, tmp_path) -> None:
    version = python_backend.version(contract_of(SCALED, SIGNATURE), body(right), "candidate")
    bench = Bench(python_backend, task_of(version, None, tmp_path), version)
    assert bench.seen_first({"n": 33})
    assert not bench.seen_first({"n": 0})


def _scalar(run, name):
    return next(float(a.value) for a in run.arguments if isinstance(a, ScalarArgument) and a.name == name)
