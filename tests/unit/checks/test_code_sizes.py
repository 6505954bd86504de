"""Sizes at which compiled code goes another way, whatever text its conditions come from."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.code_sizes import MOST_SIZES, code_sizes
from kernelmate.checks.ptx_values import evaluated, number
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"rows": 12, "cols": 160}, {"rows": 3, "cols": 77}), ("rows",), ("64",),
    (Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "float32", ("rows", "cols")),
     Argument("cols", None, "int32"), Argument("rows", None, "int32")),
)  # fmt: skip
TRIED = (*CONTRACT.sizes, {"rows": 5, "cols": 257}, {"rows": 48, "cols": 64}, {"rows": 1, "cols": 33})
LOOP = "for (int c = threadIdx.x; c < end; c += 64) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c];"


def version(end: str, before: str = "", above: str = "") -> Version:
    text = f"""{above}
__global__ void k(const float* x, float* y, int cols, int rows) {{ {before} const int end = {end}; {LOOP} }}
"""
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, CONTRACT, kernel.unit)


BASELINE = version("cols")


@pytest.mark.parametrize(
    ("end", "before", "above", "wrong"),
    [
        ("cols - (cols == lim(cols) && cols > 200)", "", "__device__ int lim(int n) { return n / 64 * 64 + 3; }",
         lambda rows, cols: cols % 64 == 3 and cols > 200),
        ("cols - (cols > lim && cols % 16 == 6)", "int lim = 200; lim += 13;", "",
         lambda rows, cols: cols > 213 and cols % 16 == 6),
        ("cols - (cols * 0.01f > 2.5f && cols % 32 == 9)", "", "", lambda rows, cols: cols > 250 and cols % 32 == 9),
        ("cols - (__popc(cols) == 7 && cols > 200)", "", "",
         lambda rows, cols: bin(cols).count("1") == 7 and cols > 200),
        ("cols - (min(cols, 300) == 300 && cols % 16 == 11)", "", "", lambda rows, cols: cols >= 300 and cols % 16 == 11),
        ("cols / 100 == 7 && cols / 10 % 10 == 3 ? cols - 1 : cols", "", "", lambda rows, cols: cols // 10 == 73),
        ("cols - (n == cols)", "int n = 1; for (int k = 0; k < 5; ++k) n *= 3; n += 4;", "",
         lambda rows, cols: cols == 247),
        ("cols - (cols > 10 * 20 + (5 << 4) && cols % 8 == 3)", "", "", lambda rows, cols: cols > 280 and cols % 8 == 3),
        ("cols + (((cols ^ 311) - 1) >> 31)", "", "", lambda rows, cols: cols == 311),
        ("cols - (rows * 3 + 5 == cols)", "", "", lambda rows, cols: rows * 3 + 5 == cols),
        ("cols - ((long long)cols * rows % 1009 == 1008)", "", "", lambda rows, cols: rows * cols % 1009 == 1008),
        ("cols - (__clz(cols) == 22 && (cols & 15) == 13)", "", "",
         lambda rows, cols: 512 <= cols < 1024 and cols % 16 == 13),
    ],
)  # fmt: skip
def test_a_size_is_found_for_a_condition_that_only_compiled_code_shows(end, before, above, wrong) -> None:
    assert not any(wrong(**size) for size in TRIED)
    found = code_sizes(CONTRACT, TRIED, version(end, before, above), BASELINE)
    assert any(wrong(**size) for size in found), found


@pytest.mark.parametrize("end", ["cols", "cols % 4 == 0 ? cols : cols", "cols < 100 ? cols : max(cols, 100)"])
def test_a_version_whose_conditions_come_out_both_ways_asks_for_no_size(end) -> None:
    assert code_sizes(CONTRACT, TRIED, version(end), BASELINE) == ()


def test_conditions_of_the_baseline_are_not_asked_about() -> None:
    odd = version("cols - (cols == 311)")
    assert code_sizes(CONTRACT, TRIED, odd, odd) == ()


def test_few_sizes_are_found_for_many_conditions() -> None:
    many = version(" - ".join(["cols", *(f"(cols % {n} == {n - 1} && cols > {n * 3})" for n in range(300, 330))]))
    assert 1 <= len(code_sizes(CONTRACT, TRIED, many, BASELINE)) <= MOST_SIZES


def test_a_size_at_which_a_loop_is_not_entered_shows_no_branch_of_its_body() -> None:
    """At cols = 0 the remainder is zero, but nothing is computed; the sizes below have no other multiple of 128."""
    body = """for (int t = 0; t < cols; t += 16) {
  if (x[t] > 0) y[t] = x[t];
  __syncthreads();
  if (cols & 127) y[t + 1] = x[t + 1];
  __syncthreads();
}"""
    found = code_sizes(CONTRACT, (*TRIED, {"rows": 5, "cols": 0}), version("cols", body), BASELINE)
    assert any(size["cols"] and size["cols"] % 128 == 0 for size in found)


@pytest.mark.parametrize(
    ("opcode", "operands", "expected"),
    [
        ("add.s32", (2**31 - 1, 1), -(2**31)),
        ("sub.u32", (0, 1), 2**32 - 1),
        ("mul.lo.s32", (65536, 65536), 0),
        ("mul.hi.u32", (2**32 - 1, 2**32 - 1), 2**32 - 2),
        ("mul.hi.s32", (-7, 3), -1),
        ("mul.hi.s64", (-7, 2**62), -2),
        ("mul.hi.u64", (-1, -1), -2),
        ("mul.hi.s64", (123456789012345, -987654321098765), 123456789012345 * -987654321098765 >> 64),
        ("mul.wide.u16", (7, -13107), 7 * 52429),
        ("mad.lo.s32", (3, 4, 5), 17),
        ("div.s32", (-7, 2), -3),
        ("rem.s32", (-7, 2), -1),
        ("shr.s32", (-8, 31), -1),
        ("shr.u32", (-1, 28), 15),
        ("shl.b32", (1, 31), -(2**31)),
        ("shl.b32", (1, 40), 0),
        ("popc.b32", (-1,), 32),
        ("clz.b32", (1,), 31),
        ("not.b32", (0,), -1),
        ("cvt.s64.s32", (-5,), -5),
        ("cvt.u16.u32", (70000,), 4464),
        ("cvt.rzi.s32.f32", (np.float32(-2.7),), -2),
        ("setp.gt.u32", (-1, 5), 1),
        ("setp.lt.f32", (np.float32(1.5), np.float32(2)), 1),
        ("selp.b32", (4, 9, 0), 9),
    ],
)  # fmt: skip
def test_instructions_have_the_values_of_the_ptx_manual(opcode, operands, expected) -> None:
    values = [np.asarray(one) if isinstance(one, np.floating) else np.array(one, np.int64) for one in operands]
    assert evaluated(tuple(opcode.split(".")), values) == expected


@pytest.mark.parametrize("opcode", ["ex2.approx.f32", "prmt.b32", "setp.lt.and.s32", "mad.wide.s32", "bfe.u32", "mov"])
def test_any_other_instruction_has_no_value(opcode) -> None:
    assert evaluated(tuple(opcode.split(".")), [np.array(1), np.array(1), np.array(1)]) is None


def test_numbers_are_read_as_ptx_writes_them() -> None:
    assert number("-64") == -64
    assert number("0xFFFFFFFFFFFFFFFF") == -1
    assert number("0f40200000") == np.float32(2.5)
    assert number("0d4000000000000000") == 2.0
    assert number("%r1") is None
