"""Loads, stores and accesses outside every array; memory of ended launches is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.memory import BufferPool

Launch = Callable[..., RunResult]
Text = Callable[..., str]


def codes(result: RunResult) -> list[str]:
    return [finding.code for finding in result.findings]


COPY = """
mul.wide.u32 %d1, %tid1, {size}; add.s64 %d2, %p0, %d1; add.s64 %d3, %p1, %d1;
{load}.{form} {registers}, [%d2]; st.global.{form} [%d3], {registers}; ret;
"""


@pytest.mark.instruction("ld", "ldu", "st")
@pytest.mark.parametrize(
    "load", ["ld.global", "ld.volatile.global", "ldu.global", "ld.global.nc", "ld.weak.global.L1::no_allocate"]
)
@pytest.mark.parametrize(
    ("form", "registers", "size"),
    [
        ("u8", "%h1", 1), ("b16", "%h1", 2), ("b32", "%r1", 4), ("f32", "%f1", 4), ("b64", "%d9", 8), ("f64", "%g1", 8),
        ("v2.b32", "{%r1, %r2}", 8), ("v4.f32", "{%f1, %f2, %f3, %f4}", 16), ("v2.u64", "{%d8, %d9}", 16),
        ("v4.u8", "{%h1, %h2, %h3, %h4}", 4), ("v2.b16", "{%h1, %h2}", 4),
    ],
)  # fmt: skip
def test_every_width_moves_its_bytes(
    form: str, registers: str, size: int, load: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    data = rng.integers(0, 256, 64 * size, dtype=np.uint8)
    result = launch(
        kernel(COPY.format(load=load, form=form, registers=registers, size=size), 2),
        data,
        np.zeros_like(data),
        grid=(2,),
    )
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], data)
    assert result.reads == {"a0"}


@pytest.mark.instruction("ld")
def test_narrow_loads_extend_into_wide_registers(launch: Launch, kernel: Text) -> None:
    data = np.array([0x80, 0x7F] * 16, np.uint8)
    body = """
    cvt.u64.u32 %d1, %tid1; add.s64 %d2, %p0, %d1; mul.wide.u32 %d3, %tid1, 8; add.s64 %d4, %p1, %d3;
    ld.global.s8 %r1, [%d2]; ld.global.u8 %r2, [%d2]; st.global.v2.b32 [%d4], {%r1, %r2}; ret;
    """
    result = launch(kernel(body, 2), data, np.zeros(64, np.int32))
    assert result.arrays["a1"].reshape(-1, 2)[:2].tolist() == [[-128, 128], [127, 127]]


OFFSET = "add.s32 %r1, %tid1, {by}; mul.wide.s32 %d1, %r1, 4; add.s64 %d2, %p0, %d1;"


def test_a_read_past_the_end_names_buffer_offset_thread_and_place(launch: Launch, kernel: Text) -> None:
    body = f"{OFFSET.format(by=1)} .loc 1 14 9\n ld.global.f32 %f1, [%d2]; st.global.f32 [%at4], %f1; ret;"
    result = launch(kernel(body), np.arange(32, dtype=np.float32))
    finding, race = result.findings
    assert race.code == "global-race"
    assert (finding.code, finding.severity, finding.buffer, finding.offset) == (
        "out-of-bounds-read",
        "error",
        "a0",
        128,
    )
    assert (finding.line, finding.column, finding.threads) == (14, 9, (31,))
    assert "128" in finding.message
    assert "block (0, 0, 0)" in finding.message
    kept = result.arrays["a0"]
    assert kept[:31].tolist() == list(range(1, 32))
    assert np.isnan(kept[31])


def test_a_write_before_the_start_is_dropped_and_reported_once(launch: Launch, kernel: Text) -> None:
    body = f"{OFFSET.format(by=-3)} st.global.f32 [%d2], 0f3F800000; ret;"
    result = launch(kernel(body), np.zeros(256, np.float32), grid=(8,))
    (finding,) = result.findings
    assert (finding.code, finding.offset, finding.threads) == ("out-of-bounds-write", -12, (0, 1, 2))
    assert result.arrays["a0"].tolist() == [1.0] * 253 + [0.0] * 3


def test_two_places_are_two_findings(launch: Launch, kernel: Text) -> None:
    body = f"""{OFFSET.format(by=1)}
    .loc 1 3 1
    ld.global.f32 %f1, [%d2];
    .loc 1 4 1
    ld.global.f32 %f2, [%d2+4]; ret;"""
    result = launch(kernel(body), np.zeros(32, np.float32))
    assert [(finding.line, finding.offset) for finding in result.findings] == [(3, 128), (4, 128)]


def test_a_wild_pointer_stops_the_launch(launch: Launch, kernel: Text) -> None:
    body = "ld.global.f32 %f1, [64]; st.global.f32 [%at4], 0f3F800000; ret;"
    result = launch(kernel(body), np.zeros(32, np.float32))
    assert codes(result) == ["illegal-address"]
    assert "0x40" in result.findings[0].message
    assert not result.arrays["a0"].any()


def test_an_address_off_its_size_is_misaligned(launch: Launch, kernel: Text) -> None:
    body = "add.s64 %d1, %at4, 2; ld.global.f32 %f1, [%d1]; ret;"
    result = launch(kernel(body), np.zeros(64, np.float32))
    assert codes(result) == ["misaligned-access"]
    assert result.findings[0].offset == 2


def test_a_misaligned_base_shifts_vectors_but_not_elements(launch: Launch, kernel: Text) -> None:
    data = np.arange(64, dtype=np.float32)
    one = "ld.global.f32 %f1, [%at4]; st.global.f32 [%at4], %f1; ret;"
    assert not launch(kernel(one), data, misalign=1, grid=(2,)).findings
    four = "mul.wide.u32 %d1, %tid1, 16; add.s64 %d2, %p0, %d1; ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%d2]; ret;"
    assert codes(launch(kernel(four), data, misalign=1, block=(8,))) == ["misaligned-access"]


def test_writing_what_is_only_read_is_a_finding_and_shows_in_the_array(launch: Launch, kernel: Text) -> None:
    result = launch(kernel("st.global.u32 [%at4], %tid1; ret;"), np.zeros(32, np.uint32), written=False)
    assert codes(result) == ["input-mutated"]
    assert result.findings[0].buffer == "a0"
    assert result.arrays["a0"].tolist() == list(range(32))


def test_an_empty_array_has_no_byte_to_read(launch: Launch, kernel: Text) -> None:
    result = launch(kernel("ld.global.f32 %f1, [%at4]; ret;"), np.zeros(0, np.float32))
    assert codes(result) == ["out-of-bounds-read"]
    assert launch(kernel("ret;"), np.zeros((0, 5), np.float32)).arrays["a0"].shape == (0, 5)


def test_the_callers_array_is_never_written(launch: Launch, kernel: Text) -> None:
    data = np.zeros(32, np.uint32)
    launch(kernel("st.global.u32 [%at4], %tid1; ret;"), data)
    assert not data.any()


def test_lanes_of_one_load_may_read_from_different_arrays(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 1; setp.eq.u32 %q1, %r1, 0; selp.b64 %d1, %p0, %p1, %q1; add.s64 %d2, %d1, %off4;
    ld.global.u32 %r2, [%d2]; add.s64 %d3, %p2, %off4; st.global.u32 [%d3], %r2; ret;
    """
    even, odd = np.arange(32, dtype=np.uint32), np.arange(32, dtype=np.uint32) + 1000
    result = launch(kernel(body, 3), even, odd, np.zeros(32, np.uint32))
    assert not result.findings
    assert result.arrays["a2"].tolist() == [index + (1000 if index % 2 else 0) for index in range(32)]


SHARED = """
.shared .align 16 .b8 tile[128];
cvt.u32.u64 %r1, %off4; mov.u32 %r2, tile; add.s32 %r3, %r2, %r1;
"""


def test_shared_memory_beyond_the_block_is_out_of_bounds(launch: Launch, kernel: Text) -> None:
    result = launch(kernel(f"{SHARED} st.shared.u32 [%r3+4], %tid1; ret;"), np.zeros(32, np.uint32))
    (finding,) = result.findings
    assert (finding.code, finding.buffer, finding.offset, finding.threads) == (
        "out-of-bounds-write",
        "tile",
        128,
        (31,),
    )
    assert "128 bytes" in finding.message


def test_dynamic_shared_memory_has_the_size_of_the_launch(launch: Launch, kernel: Text) -> None:
    before = ".extern .shared .align 16 .b8 pool[];"
    body = """
    mov.u32 %r1, pool; shl.b32 %r2, %tid1, 2; add.s32 %r3, %r1, %r2; st.shared.u32 [%r3], %tid1; bar.sync 0;
    xor.b32 %r4, %r2, 124; add.s32 %r5, %r1, %r4; ld.shared.u32 %r6, [%r5]; st.global.u32 [%at4], %r6; ret;
    """
    text = kernel(body, before=before)
    fits = launch(text, np.zeros(32, np.uint32), shared=128)
    assert not fits.findings
    assert fits.arrays["a0"].tolist() == list(range(31, -1, -1))
    assert set(codes(launch(text, np.zeros(32, np.uint32), shared=124))) == {
        "out-of-bounds-read",
        "out-of-bounds-write",
    }


def test_local_arrays_belong_to_their_thread(launch: Launch, kernel: Text) -> None:
    body = """
    mov.u64 %d1, frame; cvta.local.u64 %d2, %d1; and.b32 %r1, %tid1, 7; mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d2, %d3;
    st.u32 [%d4], %tid1; cvta.to.local.u64 %d5, %d4; ld.local.u32 %r2, [%d5]; st.global.u32 [%at4], %r2;
    ret;
    """
    text = kernel(body, declarations=".local .align 4 .b8 frame[32];")
    assert launch(text, np.zeros(64, np.uint32), grid=(2,)).arrays["a0"].tolist() == list(range(64))
    beyond = text.replace("[%d5];", "[%d5+32];")
    assert codes(launch(beyond, np.zeros(64, np.uint32), grid=(2,))) == ["out-of-bounds-read"]


@pytest.mark.instruction("cvta", "isspacep")
def test_generic_addresses_reach_every_space(launch: Launch, kernel: Text) -> None:
    body = f"""{SHARED}
    st.shared.u32 [%r3], %tid1; cvt.u64.u32 %d1, %r3; cvta.shared.u64 %d2, %d1;
    and.b32 %r4, %tid1, 1; setp.eq.u32 %q1, %r4, 0; selp.b64 %d3, %d2, %at4, %q1;
    ld.u32 %r5, [%d3]; isspacep.shared %q2, %d3; selp.u32 %r6, 1000, 0, %q2; add.u32 %r7, %r5, %r6;
    st.u32 [%at4], %r7; ret;
    """
    result = launch(kernel(body), np.full(32, 7, np.uint32))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [1000 + index if index % 2 == 0 else 7 for index in range(32)]


def test_variables_of_the_module_start_with_their_values(launch: Launch, kernel: Text) -> None:
    before = """
    .const .align 4 .u32 scale[4] = {10, 20, 0x1E, 40};
    .global .align 8 .u64 where[2] = {scale, scale+8};
    .global .align 4 .f32 bias = 0f3FC00000;
    """
    body = """
    and.b32 %r1, %tid1, 3; mul.wide.u32 %d1, %r1, 4; mov.u64 %d2, scale; add.s64 %d3, %d2, %d1; ld.const.u32 %r2, [%d3];
    mov.u64 %d4, where; ld.global.u64 %d5, [%d4+8]; ld.u32 %r3, [%d5]; ld.global.f32 %f1, [bias]; cvt.rzi.u32.f32 %r4, %f1;
    add.u32 %r5, %r2, %r3; add.u32 %r6, %r5, %r4; st.global.u32 [%at4], %r6; ret;
    """
    result = launch(kernel(body, before=before), np.zeros(32, np.uint32))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [(10, 20, 30, 40)[index % 4] + 31 for index in range(32)]


def test_module_variables_do_not_outlive_a_launch(launch: Launch, kernel: Text) -> None:
    before = ".global .align 4 .u32 count = 5;"
    body = "atom.global.add.u32 %r1, [count], 1; st.global.u32 [%at4], %r1; ret;"
    text = kernel(body, before=before)
    for _ in range(2):
        assert launch(text, np.zeros(32, np.uint32)).arrays["a0"].tolist() == list(range(5, 37))


def test_structures_by_value_are_read_through_addresses_too(launch: Launch) -> None:
    ptx = """.version 8.6
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 p0, .param .align 8 .b8 s[16]) {
    .reg .b32 %r<8>; .reg .b64 %d<8>;
    ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2;
    and.b32 %r2, %r1, 3; mul.wide.u32 %d4, %r2, 4; mov.b64 %d5, s; add.s64 %d6, %d5, %d4; ld.param.u32 %r3, [%d6];
    ld.param.u32 %r4, [s+12]; add.u32 %r5, %r3, %r4; st.global.u32 [%d3], %r5; ret; }
    """
    value = np.array([(1, 2, 3, 4)], np.dtype([(name, np.uint32) for name in "abcd"]))[0]
    assert launch(ptx, np.zeros(8, np.uint32), value, block=(8,)).arrays["a0"].tolist() == [5, 6, 7, 8] * 2


def test_reads_are_of_bytes_that_the_kernel_has_not_written(launch: Launch, kernel: Text) -> None:
    own = "st.global.u32 [%at4], 7; ld.global.u32 %r1, [%at4]; add.u32 %r2, %r1, 1; st.global.u32 [%at4], %r2; ret;"
    assert launch(kernel(own), np.zeros(32, np.uint32)).reads == frozenset()
    others = "st.global.u32 [%at4], 7; ld.global.u32 %r1, [%at4+4]; ret;"
    assert launch(kernel(others), np.zeros(64, np.uint32)).reads == {"a0"}
    added = "red.global.add.u32 [%at4], 1; ret;"
    assert launch(kernel(added), np.zeros(32, np.uint32)).reads == {"a0"}


@pytest.mark.parametrize("dtype", [np.float16, np.bool_, np.complex64, np.int8])
def test_arrays_of_any_dtype_come_back_as_they_were(dtype: Any, launch: Launch, kernel: Text) -> None:
    data = np.ones((3, 4), dtype)
    result = launch(kernel("ret;"), data)
    assert result.arrays["a0"].dtype == data.dtype
    assert np.array_equal(result.arrays["a0"], data)


LENGTH = 1 << 20


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_what_nobody_holds_is_taken_again() -> None:
    spare = BufferPool()
    first = spare.take(LENGTH)
    where = address(first)
    del first
    assert address(spare.take(LENGTH)) == where


def test_what_somebody_holds_a_view_of_is_not() -> None:
    spare = BufferPool()
    first = spare.take(LENGTH)
    view = first[64:].view(np.float32)
    view[:] = 1.0
    where = address(first)
    del first
    second = spare.take(LENGTH)
    second[:] = 7
    assert address(second) != where
    assert (view == 1.0).all()


def test_a_little_is_not_taken_from_what_is_much_larger() -> None:
    spare = BufferPool()
    spare.take(8 * LENGTH)
    assert spare.take(LENGTH).base.size == LENGTH


def test_no_more_is_kept_than_may_be() -> None:
    spare = BufferPool(most=3 * LENGTH)
    held = [spare.take(LENGTH) for _ in range(5)]
    assert len({address(one) for one in held}) == 5
    assert sum(one.size for one in spare._kept) == 3 * LENGTH
    spare.take(4 * LENGTH)
    assert sum(one.size for one in spare._kept) == 3 * LENGTH
