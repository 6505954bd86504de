"""Reading PTX text, and finding the user's place in it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.operands import PtxError, parse_operand, split_top
from kernelmate.backends.emulator.program import (
    Address,
    Immediate,
    Register,
    RegisterPair,
    Sink,
    Special,
    Symbol,
    Vector,
)
from kernelmate.backends.emulator.ptx import parse_program
from kernelmate.records import Compiled

REGISTERS = {"%r1": "b32", "%p1": "pred", "x": "b32"}


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("%r1", Register("%r1")),
        ("!%p1", Register("%p1", negated=True)),
        ("%tid.x", Special("%tid.x")),
        ("-5", Immediate(-5)),
        ("0x1FU", Immediate(31)),
        ("0b101", Immediate(5)),
        ("017", Immediate(15)),
        ("0f3F800000", Immediate(0x3F800000, 4)),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, 8)),
        ("1.5", Immediate(0x3FF8000000000000, 8)),
        ("_", Sink()),
        ("name+12", Symbol("name", 12)),
        ("$L__BB0_3", Symbol("$L__BB0_3")),
        ("[%r1+-8]", Address(Register("%r1"), -8)),
        ("[%r1 + 0x10]", Address(Register("%r1"), 16)),
        ("[name+4]", Address(Symbol("name"), 4)),
        ("[64]", Address(None, 64)),
        ("{%r1, _, 3}", Vector((Register("%r1"), Sink(), Immediate(3)))),
        ("%r1|%p1", RegisterPair(Register("%r1"), Register("%p1"))),
        ("WARP_SZ", Immediate(32)),
        ("x", Register("x")),
    ],
)
def test_operands(text: str, operand: object) -> None:
    assert parse_operand(text, lambda name: name, REGISTERS) == operand


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_in_every_spelling(value: int) -> None:
    spellings = [str(value), hex(value), *([f"{value}U"] if value >= 0 else [])]
    assert {parse_operand(text, lambda name: name, {}) for text in spellings} == {Immediate(value)}


@given(st.lists(st.sampled_from(["%r1", "{%r1, %r2}", "[%r1+4]", "(a, b)", "7"]), max_size=6))
def test_commas_inside_brackets_do_not_split(parts: list[str]) -> None:
    assert split_top(", ".join(parts)) == parts


def test_what_is_no_operand_is_an_error() -> None:
    with pytest.raises(PtxError, match="cannot read"):
        parse_operand("%r1 %r2", lambda name: name, REGISTERS)


MODULE = """
// a comment with ; and { in it
.version 8.6
.target sm_90
.address_size 64
.file 1 "dir//user.cu" /* another
comment; { */
.file 2 "helper.h"
.global .align 4 .f32 table[2][2] = {{0f3F800000, 2.0}, {0f40400000, 0f40800000}};
.const .align 1 .b8 text[6] = {104, 105, 0x21};
.extern .shared .align 16 .b8 pool[];
.visible .entry k(
    .param .u64 .ptr .global .align 4 k_param_0,
    .param .align 8 .b8 k_param_1[24]
)
.maxntid 256, 1, 1
.minnctapersm 2
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>, t;
    .loc 1 10 3
    mov.u32 %r1, 5;
    .pragma "nounroll";
LOOP:
    .loc 2 7 9, function_name info1, inlined_at 1 12 5
    { .reg .b32 t; mov.u32 t, %r1; @!%p1 bra LOOP; }
    .loc 2 30 1, function_name info2, inlined_at 2 7 9
    mov.u32 t, %r1;
    .loc 1 0 3
    ret;
}
.section .debug_str
{
.b8 1,2,3
}
"""


def test_a_module_as_the_compiler_prints_it() -> None:
    program = parse_program(MODULE, "k")
    function = program.functions["k"]
    assert [(variable.name, variable.size, variable.align) for variable in function.parameters] == [
        ("k_param_0", 8, 8),
        ("k_param_1", 24, 8),
    ]
    assert np.frombuffer(program.variables["table"].initial, np.float32).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (program.variables["text"].initial, program.variables["text"].size) == (b"hi!", 6)
    assert program.variables["pool"].size == 0
    assert function.labels == {"LOOP": 1}
    assert [step.opcode for step in function.body] == ["mov.u32", "mov.u32", "bra", "mov.u32", "ret"]
    inner, outer = function.body[1].operands[0], function.body[3].operands[0]
    assert inner != outer
    assert function.body[2].guard == Register("%p1", negated=True)


def test_inlined_lines_lead_back_to_the_users_own() -> None:
    body = parse_program(MODULE, "k").functions["k"].body
    places = [(step.position.line, step.position.column) for step in body if step.position]
    assert places == [(10, 3), (12, 5), (12, 5), (12, 5), (12, 5)]


def test_findings_in_helpers_stand_at_the_innermost_line_of_the_users_text(
    cuda: Callable[..., Compiled], run_cuda: Callable[..., RunResult]
) -> None:
    text = """#include <cuda_fp16.h>
__device__ __forceinline__ float pick(const float* x, int i) {
    return x[i + 7];
}
__device__ __noinline__ float far(const float* x, int i) {
    return x[i + 9] * 2.0f;
}
extern "C" __global__ void k(const float* x, const __half2* h, float* y) {
    int i = threadIdx.x;
    y[i] = pick(x, i);
    y[i] += far(x, i);
    y[i] += __low2float(__ldg(h + i + 3));
}
"""
    arguments = [("x", np.zeros(32, np.float32)), ("h", np.zeros(64, np.float16)), ("y", np.zeros(32, np.float32))]
    result = run_cuda(cuda(text), *arguments)
    assert [(f.code, f.line, f.buffer) for f in result.findings] == [
        ("out-of-bounds-read", 3, "x"),
        ("out-of-bounds-read", 6, "x"),
        ("out-of-bounds-read", 12, "h"),
    ]


@pytest.mark.parametrize(
    "text",
    ["", ".version 8.0\n", MODULE.replace("mov.u32 %r1, 5;", "mov.u32 %r1 5 6 ; }"), MODULE[: MODULE.index("ret;")]],
)
def test_broken_text_is_an_error_and_no_crash(text: str) -> None:
    with pytest.raises(PtxError):
        parse_program(text, "k")
