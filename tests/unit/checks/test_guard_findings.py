"""Findings from code alone, on real compilations, and from later launches of a timed version."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks import guard_findings
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import FIRST, LaunchOutcome, PlannedLaunch
from kernelmate.checks.guard_findings import code_findings, later_findings
from kernelmate.checks.styles import NORMAL
from kernelmate.checks.timed import JudgedLaunch, LaunchTimes
from kernelmate.checks.tolerances import MaximumErrors
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"n": 64},), ("1",), ("32",), (Argument("y", "inout", "float16", ("n",)),), accumulate="float32"
)
HALF_SUM = """__global__ void k(unsigned* y) {
  unsigned d[2] = {y[0], y[1]};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
               : "+r"(d[0]), "+r"(d[1]) : "r"(y[2]), "r"(y[3]), "r"(y[4]));
  y[threadIdx.x] = d[0] + d[1];
}
"""


def version(text: str) -> Version:
    kernel = find_kernels(text_unit(text, "model.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, CONTRACT, kernel.unit)


def scaling(body: str) -> Version:
    return version(f"__global__ void k(float* y) {{ const float v = y[threadIdx.x]; y[threadIdx.x] = {body}; }}\n")


def test_a_sum_in_float16_is_found_at_the_users_line() -> None:
    (finding,) = code_findings(version(HALF_SUM), None, CONTRACT)
    assert (finding.code, finding.severity, finding.file, finding.line) == ("precision-loss", "error", "model.cu", 3)


def test_where_code_cannot_be_read_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> str:
        raise CompilerUnavailable("nvdisasm is not installed.", hint="Run: pip install nvidia-cuda-nvdisasm")

    monkeypatch.setattr(guard_findings, "sass", missing)
    (finding,) = code_findings(version(HALF_SUM), None, CONTRACT)
    assert finding.severity == "note"
    assert "nvdisasm is not installed. Run: pip install" in finding.message


def test_code_without_matrix_instructions_is_not_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> str:
        raise AssertionError("there is nothing to look for")

    monkeypatch.setattr(guard_findings, "sass", never)
    assert list(code_findings(scaling("2.0f * v"), scaling("v"), CONTRACT)) == []


def test_approximations_and_clocks_are_notes_beside_a_baseline_without_them() -> None:
    fast = scaling("__sinf(v) + clock()")
    found = list(code_findings(fast, scaling("sinf(v)"), replace(CONTRACT, accumulate=None)))
    assert [(f.code, f.severity) for f in found] == [("precision-loss", "note"), ("nondeterministic", "note")]
    assert list(code_findings(fast, fast, CONTRACT)) == []


LATER_CONTRACT = Contract("k", ({"n": 4},), ("1",), ("32",), (Argument("y", "out", "float32", ("n",)),))
RIGHT = {"y": np.arange(4, dtype=np.float32)}
WRONG = {"y": np.full(4, -9, np.float32)}
ANSWER = ExpectedOutputs({"y": np.arange(4.0)}, MaximumErrors({"y": np.full(4, 1e-6)}, {"y": np.full(4, 1e-3)}))
KEPT = JudgedLaunch(LaunchOutcome(PlannedLaunch(FIRST, NORMAL, 0, 0), {}, RunResult(RIGHT)), ANSWER)


def codes(timed: LaunchTimes, kept: JudgedLaunch | None = KEPT) -> list[tuple[str, str | None]]:
    return [(code, buffer) for code, _, buffer in later_findings(LATER_CONTRACT, kept, timed)]


def test_launches_that_do_the_same_work_say_nothing() -> None:
    assert codes(LaunchTimes(None, outputs=RIGHT, repeats=RepeatedLaunch(100, 5.0, 5.1, 5.2, RIGHT, (5.0, 6.0)))) == []


def test_an_output_that_timed_launches_left_wrong_is_told_once() -> None:
    repeats = RepeatedLaunch(100, 1.0, 50.0, None, WRONG, (1.0, 900.0))
    assert codes(LaunchTimes(None, outputs=WRONG, repeats=repeats)) == [("stateful", "y")]


def test_an_output_that_only_the_last_of_many_launches_left_wrong_is_told() -> None:
    assert codes(LaunchTimes(None, outputs=RIGHT, repeats=RepeatedLaunch(100, None, None, None, WRONG))) == [
        ("stateful", "y")
    ]


def test_idle_launches_and_late_clocks_are_told_apart_from_impossible_times() -> None:
    repeats = RepeatedLaunch(100, 1.0, 50.0, None, RIGHT, (1.0, 900.0))
    found = codes(LaunchTimes(None, outputs=RIGHT, repeats=repeats, doubt="1 us is not possible"))
    assert found == [("sub-physical-time", None), ("stateful", None), ("sub-physical-time", None)]


def test_times_are_judged_where_the_arrays_were_not_kept() -> None:
    assert codes(LaunchTimes(None, outputs=WRONG, repeats=RepeatedLaunch(100, 1.0, 50.0, None, WRONG)), None) == [
        ("stateful", None)
    ]
