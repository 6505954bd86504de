"""Sizes beyond the listed ones, and what gives a reason for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.checks.capacity import capacity_sizes, compared_numbers, further_sizes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

LISTED = ({"rows": 12, "cols": 160}, {"rows": 3, "cols": 77})
CONTRACT = Contract(
    "k", LISTED, ("rows",), ("64",),
    (Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "float32", ("rows", "cols")),
     Argument("cols", None, "int32")),
)  # fmt: skip
LOOP = "for (int c = threadIdx.x; c < cols; c += 64) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c];"


def version(body: str, above: str = "", **changes) -> Version:
    text = f"{above}\n__global__ void k(const float* x, float* y, int cols) {{ {body} }}\n"
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, replace(CONTRACT, **changes), kernel.unit)


BASELINE = version(LOOP)


def test_each_name_grows_to_several_times_what_is_listed_and_the_others_stay_small() -> None:
    (long,) = capacity_sizes(CONTRACT, LISTED, (*LISTED, {"rows": 257, "cols": 37}))
    assert long["cols"] > 4 * 160
    assert long["cols"] > 4096
    assert long["cols"] % 2 == 1
    assert long["rows"] == 3


def test_what_require_excludes_is_not_tried() -> None:
    narrow = replace(CONTRACT, require=("cols % 64 == 0", "rows <= 12"))
    (long,) = capacity_sizes(narrow, LISTED, LISTED)
    assert long["cols"] % 64 == 0
    assert long["cols"] > 4096
    assert capacity_sizes(replace(CONTRACT, require=("cols <= 160", "rows <= 12")), LISTED, LISTED) == ()


def test_names_that_are_tried_as_large_anyway_do_not_grow() -> None:
    assert capacity_sizes(CONTRACT, LISTED, (*LISTED, {"rows": 20_000, "cols": 20_000})) == ()


@pytest.mark.parametrize(
    "candidate",
    [
        version("float v[8]; for (int k = 0; k < 8; ++k) { int c = threadIdx.x + 64 * k; if (c < cols) v[k] = x[c]; }"
                "for (int k = 0; k < 8; ++k) { int c = threadIdx.x + 64 * k; if (c < cols) y[c] = v[k]; }"),
        version(LOOP, grid=("min(rows, 12)",)),
        version("if (threadIdx.x < cols) y[threadIdx.x] = x[threadIdx.x];"),
    ],
    ids=["registers", "grid", "loop"],
)  # fmt: skip
def test_numbers_of_its_own_or_fewer_loops_are_a_reason(candidate: Version) -> None:
    assert any(size["cols"] > 4096 for size in further_sizes(CONTRACT, LISTED, LISTED, candidate, BASELINE))


def test_nothing_else_is_a_reason() -> None:
    same = version(LOOP.replace("int c", "int column").replace("c ", "column ").replace("+ c]", "+ column]"))
    assert further_sizes(CONTRACT, LISTED, LISTED, same, BASELINE) == ()


def test_numbers_of_the_code_are_met_and_passed_wherever_they_come_from() -> None:
    limit = "template <int N = (9 << 11)> __device__ bool beyond(int n) { return n > N; }"
    odd = version(f"if (beyond<>(cols)) return; {LOOP}", limit)
    assert 18432 in compared_numbers(odd.compiled.ptx) | {one - 1 for one in compared_numbers(odd.compiled.ptx)}
    sizes = further_sizes(CONTRACT, LISTED, LISTED, odd, BASELINE)
    assert {18433, 18434} & {size["cols"] for size in sizes}


def test_narrow_types_are_a_reason_for_sizes_beyond_them() -> None:
    narrow = version(LOOP.replace("int c", "unsigned short c"))
    assert any(size["cols"] > 1 << 16 for size in further_sizes(CONTRACT, LISTED, LISTED, narrow, BASELINE))
