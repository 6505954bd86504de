"""Sizes at which compiled code goes another way, whatever text its conditions come from."""

from __future__ import annotations

from dataclasses import replace

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


DIGITS = """__device__ __noinline__ int digits(int n) {
  int sum = 0;
  for (; n > 0; n /= 10) sum += n % 10;
  return sum;
}"""
STEPS = """__device__ __noinline__ int next(int n) { return n % 2 ? 3 * n + 1 : n / 2; }
__device__ __noinline__ int steps(int n) { int k = 0; while (n > 1) { n = next(n); ++k; } return k; }"""


def steps(n: int) -> int:
    taken = 0
    while n > 1:
        n, taken = 3 * n + 1 if n % 2 else n // 2, taken + 1
    return taken


@pytest.mark.parametrize(
    ("end", "before", "above", "wrong"),
    [
        ("cols - bad", "bool bad = false; for (int k = 0; k < 3; ++k) bad |= table[k] == cols;",
         "__constant__ int table[3] = {311, 4711, 5};", lambda rows, cols: cols in (311, 4711, 5)),
        ("cols - (table[rows % 3] == cols)", "", "__device__ const short table[3] = {311, 4711, 5};",
         lambda rows, cols: (311, 4711, 5)[rows % 3] == cols),
        ("cols - (table[cols % 5] == cols)", "const int table[5] = {30, 311, 4711, 12, 8};", "",
         lambda rows, cols: (30, 311, 4711, 12, 8)[cols % 5] == cols),
        ("cols - (sum > 29)", "int sum = 0; for (int n = cols; n > 0; n /= 10) sum += n % 10;", "",
         lambda rows, cols: sum(map(int, str(cols))) > 29),
        ("cols - (digits(cols) > 29)", "", DIGITS, lambda rows, cols: sum(map(int, str(cols))) > 29),
        ("cols - (steps(cols) == 111)", "", STEPS, lambda rows, cols: steps(cols) == 111),
        ("cols - square", "bool square = false; for (int k = 15; k * k <= cols; ++k) square |= k * k + 3 == cols;", "",
         lambda rows, cols: cols - 3 in [k * k for k in range(15, 257)]),
        ("cols - (gridDim.x == 77)", "", "", lambda rows, cols: rows == 77),
        ("cols - (sqrtf(cols) > 17.5f && sqrtf(cols) < 17.6f)", "", "", lambda rows, cols: 17.5 < cols ** 0.5 < 17.6),
        ("cols - (sinf(cols) > 0.99995f)", "", "", lambda rows, cols: np.sin(cols) > 0.99995),
        ("cols - (__brev(cols) >> 22 == 0x2ab)", "", "", lambda rows, cols: f"{cols:032b}"[::-1][:10] == f"{0x2ab:010b}"),
    ],
)  # fmt: skip
def test_a_size_is_found_for_a_condition_that_a_loop_a_table_or_a_call_computes(end, before, above, wrong) -> None:
    assert not any(wrong(**size) for size in TRIED)
    found = code_sizes(CONTRACT, TRIED, version(end, before, above), BASELINE)
    assert any(wrong(**size) for size in found), found


def test_a_size_is_found_for_a_scalar_that_is_computed_from_sizes() -> None:
    twice = replace(CONTRACT, args=(*CONTRACT.args[:3], replace(CONTRACT.args[3], value="2 * rows + cols")))
    found = code_sizes(twice, TRIED, version("cols - (rows == 1019)"), BASELINE)
    assert any(2 * size["rows"] + size["cols"] == 1019 for size in found), found


LOOPS = (
    "for (int h = blockDim.x / 2; h > 0; h /= 2) __syncthreads();",
    "for (int t = 0; t < (cols + 15) / 16; ++t) { __syncthreads(); y[t] = x[t]; }",
    "int power = 1; while (power < cols) power *= 2; y[power] = 0;",
)


@pytest.mark.parametrize("before", LOOPS)
def test_a_loop_that_sizes_end_asks_for_no_size(before) -> None:
    assert code_sizes(CONTRACT, TRIED, version("cols", before), BASELINE) == ()


def test_a_loop_that_never_ends_ends_the_search() -> None:
    endless = version("cols - (k == 7)", "int k = 0; while (k >= 0) k = k * 3 % (cols + 1);")
    assert len(code_sizes(CONTRACT, TRIED, endless, BASELINE)) <= MOST_SIZES


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
        ("mad.wide.s32", (65536, 65536, -(2**40)), 2**32 - 2**40),
        ("mad.wide.u32", (2**32 - 1, 2, 1), 2**33 - 1),
        ("bfe.u32", (0xABCD, 4, 8), 0xBC),
        ("brev.b32", (1,), -(2**31)),
        ("bfind.u32", (40,), 5),
        ("bfind.u32", (0,), 2**32 - 1),
        ("ex2.approx.f32", (np.float32(5),), 32),
    ],
)  # fmt: skip
def test_instructions_have_the_values_of_the_ptx_manual(opcode, operands, expected) -> None:
    values = [np.asarray(one) if isinstance(one, np.floating) else np.array(one, np.int64) for one in operands]
    assert evaluated(tuple(opcode.split(".")), values) == expected


@pytest.mark.parametrize("opcode", ["prmt.b32", "setp.lt.and.s32", "bfe.s32", "bfind.s32", "mov"])
def test_any_other_instruction_has_no_value(opcode) -> None:
    assert evaluated(tuple(opcode.split(".")), [np.array(1), np.array(1), np.array(1)]) is None


def test_numbers_are_read_as_ptx_writes_them() -> None:
    assert number("-64") == -64
    assert number("0xFFFFFFFFFFFFFFFF") == -1
    assert number("0f40200000") == np.float32(2.5)
    assert number("0d4000000000000000") == 2.0
    assert number("%r1") is None
