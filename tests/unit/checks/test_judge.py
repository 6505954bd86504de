"""Judgements of kernels that are right, wrong, or only seem right; the kernels are Python functions."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.case_records import CaseRecord, RecordedFinding
from kernelmate.checks.causes import assumed_divisibility
from kernelmate.records import FindingCode
from tests.unit.checks.judging import DOUBLE, body, errors, honest, swallows_nan, writes_zeros, wrong_everywhere


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


def wrong_at_odd_sizes(x, y, n, schedule):
    y[:] = 2 * x if n % 2 == 0 else 5 * x


def changes_its_input(x, y, n, schedule):
    y[:] = 2 * x
    x[:1] = 0


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


def test_a_kernel_written_from_its_reference_must_give_nan_where_the_reference_does(verdict_on) -> None:
    """A kernel of a user's may treat NaN as it likes; one that was written has nothing but its reference."""
    theirs = verdict_on(body(swallows_nan), against=False)
    assert errors(theirs) == []
    written = verdict_on(body(swallows_nan), against=False, written=True)
    assert errors(written) == ["nan-handling"]
    assert "is a number where the reference gives NaN" in written.findings[0].message
    assert errors(verdict_on(body(honest), against=False, written=True)) == []


def test_nan_that_only_running_sums_carry_on_binds_no_written_kernel(verdict_on) -> None:
    sums = DOUBLE.replace("2 * x", "2 * x + 0 * np.cumsum(x)")
    assert errors(verdict_on(body(honest), sums, against=False, written=True)) == []
    assert errors(verdict_on(body(swallows_nan), sums, against=False, written=True)) == ["nan-handling"]


def test_the_wrong_sizes_of_a_finding_are_those_of_the_cases(verdict_on) -> None:
    judgement = verdict_on(body(wrong_everywhere))
    wrong = sum(case.correct is False for case in judgement.cases)
    assert any(case.origin == "own" and case.correct is False for case in judgement.cases)
    assert f"; {wrong} of {wrong} sizes are wrong" in judgement.findings[0].message


def test_a_size_that_is_wrong_for_infinities_alone_is_counted_as_wrong_as_well(verdict_on) -> None:
    def kernel(x, y, n, schedule):
        y[:] = 3 * x if n == 1000 else 2 * x
        if n == 33 and np.isinf(x).any():
            y[:] = 0

    judgement = verdict_on(body(kernel))
    wrong = [case for case in judgement.cases if case.correct is False]
    compared = [case for case in judgement.cases if case.correct is not None]
    assert len(wrong) == 2
    assert f"; 2 of {len(compared)} sizes are wrong" in judgement.findings[0].message


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
    assert judgement.findings
    assert all("size" in f.message for f in judgement.findings)


def test_without_reference_and_baseline_nothing_is_called_right(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    judgement = verdict_on(body(honest), block=block, against=False)
    assert judgement.correct is None
    assert all(case.correct is None for case in judgement.cases)


def test_without_reference_a_candidate_agrees_with_the_baseline(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    assert verdict_on(body(honest), block=block).correct is True
    assert verdict_on(body(wrong_everywhere), block=block).correct is False
    assert "agrees with the baseline; the contract names no reference" in verdict_on(body(honest), block=block).reasons


def test_how_much_was_looked_at_for_races_is_said(verdict_on) -> None:
    judgement = verdict_on(body(honest))
    (said,) = [reason for reason in judgement.reasons if "race" in reason]
    assert said.startswith("no race seen in ")
    assert said.endswith(f" schedules and {len(judgement.cases)} sizes")


def test_what_was_not_looked_at_for_races_is_said_once_with_its_size(verdict_on) -> None:
    def partly(x, y, n, schedule):
        honest(x, y, n, schedule)
        return {"unwatched": ("races were looked for in half of y",) if n >= 33 else ()}

    judgement = verdict_on(body(partly))
    assert judgement.correct is True
    assert "at n = 1000: races were looked for in half of y" in judgement.reasons
    assert sum("half of y" in reason for reason in judgement.reasons) == 1


MULTIPLES = DOUBLE.replace("{ n = 1000 }, { n = 33 }", "{ n = 1024 }, { n = 4096 }")


@pytest.mark.parametrize("divisor", [4, 128])
def test_a_kernel_that_is_right_at_multiples_alone_assumes_them(verdict_on, divisor: int) -> None:
    def by_multiples(x, y, n, schedule):
        y[: n // divisor * divisor] = 2 * x[: n // divisor * divisor]

    judgement = verdict_on(body(by_multiples), MULTIPLES, against=False)
    assert judgement.correct is True
    assert judgement.assumes == (f"n % {divisor} == 0",)
    assert any(f'write require = ["n % {divisor} == 0"]' in reason for reason in judgement.reasons)
    assert {"n": 3 * divisor} in [case.size for case in judgement.cases]


def test_nothing_is_assumed_where_no_divisor_explains_it(verdict_on) -> None:
    def up_to_a_limit(x, y, n, schedule):
        y[:] = 2 * x if n > 60 else 0

    assert verdict_on(body(up_to_a_limit), MULTIPLES, against=False).assumes == ()
    assert verdict_on(body(honest), MULTIPLES, against=False).assumes == ()


def test_a_candidate_assumes_nothing_that_its_baseline_does_not(verdict_on) -> None:
    judgement = verdict_on(body(ignores_the_tail), MULTIPLES)
    assert judgement.correct is False
    assert judgement.assumes == ()


def test_two_sizes_may_be_assumed_together() -> None:
    found = [CaseRecord({"m": m, "n": n}, "own") for m in (16, 32, 3, 17, 24) for n in (32, 64, 5, 33, 48)]
    for record in found:
        if record.size["m"] % 8 or record.size["n"] % 16:
            record.noted.append(RecordedFinding(FindingCode.OUT_OF_BOUNDS_READ, "warning", "reads too far"))
    asked = []

    def attempt(size):
        record = CaseRecord(size, "own")
        if size["m"] % 8 or size["n"] % 16:
            record.noted.append(RecordedFinding(FindingCode.OUT_OF_BOUNDS_READ, "warning", "reads too far"))
        asked.append(size)
        return record

    assert assumed_divisibility(found, attempt) == ("m % 8 == 0", "n % 16 == 0")
    assert asked[-1] == {"m": 24, "n": 48} or {"m": 24, "n": 48} in [record.size for record in found]
