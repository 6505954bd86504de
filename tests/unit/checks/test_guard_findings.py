"""Findings from code alone, on real compilations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.checks import guard_findings
from kernelmate.checks.guard_findings import code_findings
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
