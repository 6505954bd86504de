"""What the judge makes of kernels that are right, wrong, or only seem right; kernels are Python functions here."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.judge import judge
from kernelmate.compiler import find_target
from kernelmate.errors import ReferenceFailed
from kernelmate.records import JudgeTask

DOUBLE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "2 * x"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""


def honest(x, y, n, schedule):
    y[:] = 2 * x


def body(function):
    """A kernel without memory of its own: every load gives the same function."""
    return lambda: function


@pytest.fixture
def verdict_on(python_backend, contract_of, tmp_path):
    """Judge a body, against `honest` where `against` says so."""

    def judged(make, block=DOUBLE, against=True, seed=7, **contract_arguments):
        contract = contract_of(block, **contract_arguments)
        baseline = python_backend.version(contract, body(honest), "baseline") if against else None
        task = JudgeTask(
            "emulator", find_target(None), python_backend.version(contract, make, "candidate"), baseline, None, (),
            seed, str(tmp_path),
        )  # fmt: skip
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


def errors(judgement):
    return [f.code for f in judgement.findings if f.severity == "error"]


def test_a_right_kernel_is_right_at_every_size(verdict_on) -> None:
    judgement = verdict_on(body(honest))
    assert judgement.correct is True
    assert judgement.findings == ()
    assert [c.size for c in judgement.cases if c.origin == "contract"] == [{"n": 1000}, {"n": 33}]
    assert sum(c.origin == "own" for c in judgement.cases) >= 4
    assert all(c.correct and c.baseline_correct and c.max_error <= 1 for c in judgement.cases)


def does_nothing(x, y, n, schedule):
    pass


def ignores_the_tail(x, y, n, schedule):
    y[: n // 4 * 4] = 2 * x[: n // 4 * 4]


def writes_zeros(x, y, n, schedule):
    y[:] = 0


def wrong_everywhere(x, y, n, schedule):
    y[:] = 3 * x


def wrong_at_odd_sizes(x, y, n, schedule):
    y[:] = 2 * x if n % 2 == 0 else 5 * x


def changes_its_input(x, y, n, schedule):
    y[:] = 2 * x
    x[:1] = 0


def swallows_nan(x, y, n, schedule):
    y[:] = np.nan_to_num(2 * x)


def loses_precision(x, y, n, schedule):
    with np.errstate(all="ignore"):
        y[:] = np.clip(2 * x, -60000, 60000).astype(np.float16) if np.isfinite(x).all() else 2 * x


def depends_on_the_order(x, y, n, schedule):
    y[:] = 2 * x
    y[0] += np.float32(schedule % 2)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (does_nothing, "stale-output"),
        (ignores_the_tail, "stale-output"),
        (writes_zeros, "constant-output"),
        (wrong_everywhere, "wrong-values"),
        (wrong_at_odd_sizes, "wrong-at-size"),
        (changes_its_input, "input-mutated"),
        (swallows_nan, "nan-handling"),
        (loses_precision, "precision-loss"),
    ],
)
def test_each_kind_of_wrong_has_its_code_and_no_other(verdict_on, wrong, code) -> None:
    judgement = verdict_on(body(wrong))
    assert judgement.correct is False
    assert errors(judgement) == [code]


def test_a_kernel_that_remembers_is_stateful(verdict_on) -> None:
    def make():
        cache = {}

        def kernel(x, y, n, schedule):
            y[:] = 2 * cache.setdefault(n, x.copy())

        return kernel

    assert errors(verdict_on(make)) == ["stateful"]


def test_a_kernel_that_is_right_only_the_first_time_is_stateful(verdict_on) -> None:
    def make():
        calls = []

        def kernel(x, y, n, schedule):
            calls.append(n)
            y[:] = 2 * x if len(calls) == 1 else 7 * x

        return kernel

    assert errors(verdict_on(make)) == ["stateful"]


def test_a_kernel_whose_answer_depends_on_the_order_is_rejected(verdict_on) -> None:
    judgement = verdict_on(body(depends_on_the_order))
    assert judgement.correct is False


def test_the_first_wrong_element_is_named(verdict_on) -> None:
    def one_off(x, y, n, schedule):
        y[:] = 2 * x
        y[5:6] += 1

    case = verdict_on(body(one_off)).cases[0]
    assert case.correct is False
    assert case.first_wrong.argument == "y"
    assert case.first_wrong.index == (5,)
    assert case.first_wrong.got == pytest.approx(case.first_wrong.want + 1)


def test_sizes_of_our_own_only_warn_about_a_kernel_judged_alone(verdict_on) -> None:
    def needs_many(x, y, n, schedule):
        y[:] = 2 * x if n in (1000, 33) else 0

    judgement = verdict_on(body(needs_many), against=False)
    assert judgement.correct is True
    assert errors(judgement) == []
    assert {f.severity for f in judgement.findings} == {"warning"}


def test_without_reference_and_baseline_nothing_is_called_right(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    judgement = verdict_on(body(honest), block=block, against=False)
    assert judgement.correct is None
    assert judgement.reasons


def test_without_reference_a_candidate_agrees_with_the_baseline(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    assert verdict_on(body(honest), block=block).correct is True
    assert verdict_on(body(wrong_everywhere), block=block).correct is False
    assert "agrees with the baseline" in verdict_on(body(honest), block=block).reasons[0]


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
