"""Index arithmetic in arrays of billions of elements, on real compilations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.checks.guards.far_indices import find
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Finding, Target, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"rows": 64, "cols": 96},), ("rows",), ("32",),
    (
        Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "float32", ("rows", "cols")),
        Argument("rows", "in", "int32", None), Argument("cols", "in", "int32", None),
    ),
)  # fmt: skip
HEAD = "__global__ void k(const float* x, float* y, int rows, int cols) {\n"
WIDE = "for (int c = threadIdx.x; c < cols; c += 32) { size_t i = (size_t)blockIdx.x * cols + c;\n y[i] = 2 * x[i]; }"
NARROW = WIDE.replace("size_t i = (size_t)", "int i = ")


@pytest.fixture(scope="module")
def gpu() -> Target:
    return find_target(None)


def version(body: str, gpu: Target, contract: Contract = CONTRACT) -> Version:
    kernel = find_kernels(text_unit(f"{HEAD}{body}\n}}\n", "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=gpu, options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, contract, kernel.unit)


def found(body: str, gpu: Target, baseline: str = WIDE, contract: Contract = CONTRACT) -> list[Finding]:
    return list(find(version(body, gpu, contract), version(baseline, gpu), CONTRACT, gpu))


def test_an_index_of_32_bits_is_found_where_the_baseline_has_64(gpu: Target) -> None:
    (finding,) = found(NARROW, gpu)
    assert (finding.code, finding.severity, finding.line) == ("index-overflow", "error", 3)
    assert "elements in an array: computes an index in 32 bits that wraps" in finding.message
    assert finding.message.endswith("bound the size by `require`")


@pytest.mark.parametrize("before", ["unsigned i = blockIdx.x * cols + c;", "int i = (int)blockIdx.x * cols + c;"])
def test_the_baseline_sets_the_width(before: str, gpu: Target) -> None:
    baseline = WIDE.replace("size_t i = (size_t)blockIdx.x * cols + c;", before)
    assert not found(NARROW.replace("2 * x[i]", "x[i] + x[i]"), gpu, baseline)


def test_a_bound_that_the_candidate_names_is_its_own(gpu: Target) -> None:
    assert not found(NARROW, gpu, contract=replace(CONTRACT, require=("rows * cols < 2147483648",)))


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ("(int)((float)blockIdx.x * (float)cols + (float)c)", "wrong-at-size"),
        ("(size_t)(unsigned)((size_t)blockIdx.x * cols + c)", "index-overflow"),
    ],
)
def test_an_index_that_loses_bits_is_found(index: str, code: str, gpu: Target) -> None:
    (finding,) = found(WIDE.replace("(size_t)blockIdx.x * cols + c", index), gpu)
    assert finding.code == code


@pytest.mark.parametrize(
    "body",
    [
        WIDE.replace("int c", "unsigned c"),
        "for (size_t c = threadIdx.x; c < cols; c += 32) y[blockIdx.x * (size_t)cols + c] = x[blockIdx.x * (size_t)cols + c] * 2;",
        "const float* in = x + (size_t)blockIdx.x * cols; float* out = y + (size_t)blockIdx.x * cols;\n"
        "for (int c = 31 - threadIdx.x; c < cols; c += 32) out[c] = 2 * in[c];",
        "for (int c = threadIdx.x; c < cols; c += 32) { size_t i = (size_t)(rows - 1 - blockIdx.x) * cols + c; y[i] = 2 * x[i]; }",
    ],
)
def test_what_is_right_in_large_arrays_is_free(body: str, gpu: Target) -> None:
    assert not found(body, gpu)
