"""Judgement of a candidate beside its baseline: findings that reject it, and those that the baseline excuses."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.judge import judge
from kernelmate.records import Finding, FindingCode
from tests.unit.checks.judging import DOUBLE, body, errors, honest, swallows_nan, task_of, wrong_everywhere


def needs_a_multiple_of_32(x, y, n):
    y[: n // 32 * 32] = 2 * x[: n // 32 * 32]


MULTIPLES = DOUBLE.replace("{ n = 33 }", "{ n = 64 }").replace("{ n = 1000 }", "{ n = 1024 }")


def test_what_the_baseline_gets_wrong_at_our_own_sizes_is_not_held_against_a_candidate(compared) -> None:
    judgement = compared(needs_a_multiple_of_32, needs_a_multiple_of_32, MULTIPLES)
    assert judgement.correct is True
    assert errors(judgement) == []
    wrong = [case for case in judgement.cases if case.correct is False]
    assert wrong
    assert all(case.baseline_correct is False and case.origin == "own" for case in wrong)
    assert any("the baseline itself is wrong at" in reason for reason in judgement.reasons)


def test_what_the_baseline_gets_right_at_our_own_sizes_is(compared) -> None:
    judgement = compared(needs_a_multiple_of_32, honest, MULTIPLES)
    assert judgement.correct is False
    assert errors(judgement) == ["stale-output"]


def test_a_listed_size_must_be_right_even_where_the_baseline_is_wrong(compared) -> None:
    judgement = compared(wrong_everywhere, wrong_everywhere)
    assert judgement.correct is False
    assert errors(judgement) == ["wrong-values"]
    fixed = compared(honest, wrong_everywhere)
    assert fixed.correct is True
    assert {case.baseline_correct for case in fixed.cases} == {False}


def test_nan_is_not_asked_of_a_candidate_where_the_baseline_swallows_it(compared) -> None:
    assert compared(swallows_nan, swallows_nan).correct is True


def test_a_kernel_judged_alone_is_only_told_about_nan_and_large_inputs(verdict_on) -> None:
    def overflows(x, y, n):
        y[:] = np.where(np.isfinite(x) & (np.abs(x) > 500), np.float32(np.inf), 2 * x)

    judgement = verdict_on(body(overflows), against=False)
    assert judgement.correct is True
    assert {(f.code, f.severity) for f in judgement.findings} == {("nan-handling", "warning")}
    assert "normal inputs times 1000" in judgement.findings[0].message


def test_pointers_off_by_one_element_are_held_against_a_candidate_only(compared, verdict_on) -> None:
    def wants_alignment(x, y, n, misalign):
        y[:] = 2 * x
        if misalign:
            return {"findings": (Finding(FindingCode.MISALIGNED_ACCESS, "error", "a 16-byte load at 4", line=1),)}
        return None

    assert errors(compared(wants_alignment, honest)) == ["misaligned-access"]
    assert compared(wants_alignment, wants_alignment).correct is True
    alone = verdict_on(body(wants_alignment), against=False)
    assert (alone.correct, alone.findings) == (True, ())


def test_an_access_out_of_bounds_at_our_own_sizes_warns_a_kernel_judged_alone(compared, verdict_on) -> None:
    def reads_too_far(x, y, n):
        y[:] = 2 * x
        if n % 32:
            return {"findings": (Finding(FindingCode.OUT_OF_BOUNDS_READ, "error", "reads x[n]", line=1, buffer="x"),)}
        return None

    alone = verdict_on(body(reads_too_far), against=False, block=MULTIPLES)
    assert alone.correct is True
    assert [(f.code, f.severity) for f in alone.findings] == [("out-of-bounds-read", "warning")]
    assert "`require`" in alone.findings[0].message
    assert errors(compared(reads_too_far, honest, MULTIPLES)) == ["out-of-bounds-read"]
    assert compared(reads_too_far, reads_too_far, MULTIPLES).correct is True


def test_findings_stand_at_the_line_of_the_users_file(compared) -> None:
    def traps(x, y, n):
        return {"findings": (Finding(FindingCode.TRAP, "error", "trapped", line=3, column=2),)}

    found = compared(traps, honest).findings
    assert [(f.code, f.file, f.line, f.column) for f in found] == [("trap", "kernel.cu", 3, 2)]


def test_after_a_hang_nothing_more_is_run(python_backend, contract_of, tmp_path) -> None:
    def hangs(x, y, n):
        return {"findings": (Finding(FindingCode.HANG, "error", "over the step limit", line=1),)}

    version = python_backend.version(contract_of(DOUBLE), body(hangs), "hangs")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    assert errors(judgement) == ["hang"]
    assert len(python_backend.runs[version.compiled.binary]) == 1
    assert judgement.metrics == ()


def test_an_output_that_is_read_first_is_uninitialised(compared) -> None:
    def adds_to_it(x, y, n):
        y[:] = np.where(np.isnan(y), 2 * x, y)
        return {"reads": frozenset({"x", "y"})}

    assert errors(compared(adds_to_it, honest)) == ["uninitialised-global"]


def test_answers_that_differ_within_the_tolerance_only_warn(compared) -> None:
    def last_bit(x, y, n, schedule):
        y[:] = np.nextafter(2 * x, np.float32(np.inf)) if schedule % 2 else 2 * x

    judgement = compared(last_bit, honest)
    assert judgement.correct is True
    assert [(f.code, f.severity) for f in judgement.findings] == [("nondeterministic", "warning")]
    strict = DOUBLE.replace("[args]", "deterministic = true\n[args]")
    assert errors(compared(last_bit, honest, strict)) == ["nondeterministic"]


def test_answers_that_differ_beyond_it_are_an_error_of_that_name(compared) -> None:
    def lost_update(x, y, n, schedule):
        y[:] = 2 * x
        if schedule % 16 == 15:
            y[0] = 0

    judgement = compared(lost_update, honest)
    assert judgement.correct is False
    assert errors(judgement) == ["nondeterministic"]


INPLACE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "y + x"
[args]
x = "in float32[n]"
y = "inout float32[n]"
n = "int32"
"""


def adds(x, y, n):
    y += x
    return {"reads": frozenset({"x", "y"})}


def test_arrays_that_change_in_place_keep_their_contents(compared) -> None:
    def forgets(x, y, n):
        y[:] = x

    assert compared(adds, adds, INPLACE).correct is True
    assert errors(compared(forgets, adds, INPLACE)) == ["wrong-values"]
    assert errors(compared(does_nothing_here, adds, INPLACE)) == ["stale-output"]


def does_nothing_here(x, y, n):
    pass


def test_an_array_that_is_only_written_is_named(compared) -> None:
    def overwrites(x, y, n):
        y[:] = 2 * x
        return {"reads": frozenset({"x"})}

    block = INPLACE.replace("y + x", "2 * x")
    assert compared(overwrites, overwrites, block).only_written == ("y",)
    assert compared(adds, adds, INPLACE).only_written == ()


@pytest.mark.parametrize(
    ("align", "moved"),
    [("", {1, 2, 3}), (" align 4", {1, 2, 3}), (" align 8", {2}), (" align 16", {4}), (" align 256", {64})],
)
def test_base_pointers_are_moved_by_multiples_of_the_promised_alignment(compared, align: str, moved: set[int]) -> None:
    seen = set()

    def watches(x, y, n, misalign):
        seen.add(misalign)
        y[:] = 2 * x

    contract = DOUBLE.replace('"in float32[n]"', f'"in float32[n]{align}"')
    assert compared(watches, honest, contract).correct is True
    assert seen == {0, *moved}
