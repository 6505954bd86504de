"""Atomics as if lanes took turns: the sum, and every old value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import RunResult

Launch = Callable[..., RunResult]
Text = Callable[..., str]

STEP: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, value: old + value,
    "min": min,
    "max": max,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "inc": lambda old, value: 0 if old >= value else old + 1,
    "dec": lambda old, value: value if old == 0 or old > value else old - 1,
}


def replay(
    step: Callable[[int, int], int], cells: list[int], index: list[int], values: list[int], bits: int
) -> list[int]:
    """Old values in lane order; `cells` changes in place."""
    before = []
    for place, value in zip(index, values, strict=True):
        before.append(cells[place])
        cells[place] = step(cells[place], value) & (2**bits - 1)
    return before


@pytest.mark.instruction("atom")
@pytest.mark.parametrize("cells", [1, 5, 300, 4096])
@pytest.mark.parametrize("action", sorted(STEP))
def test_lanes_take_turns(action: str, cells: int, launch: Launch, kernel: Text, rng: np.random.Generator) -> None:
    kind = "b32" if action in {"and", "or", "xor", "exch"} else "u32"
    body = f"""
    add.s64 %d1, %p1, %off4; ld.global.u32 %r1, [%d1]; add.s64 %d2, %p2, %off4; ld.global.u32 %r2, [%d2];
    mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %p0, %d3; atom.global.{action}.{kind} %r3, [%d4], %r2;
    add.s64 %d5, %p3, %off4; st.global.u32 [%d5], %r3; ret;
    """
    count = 1024
    memory = rng.integers(0, 50, cells, dtype=np.uint32)
    index = rng.integers(0, cells, count, dtype=np.uint32)
    values = rng.integers(0, 60, count, dtype=np.uint32)
    result = launch(kernel(body, 4), memory, index, values, np.zeros(count, np.uint32), grid=(4,), block=(256,))
    after = memory.tolist()
    before = replay(STEP[action], after, index.tolist(), values.tolist(), 32)
    assert not result.findings
    assert result.arrays["a3"].tolist() == before
    assert result.arrays["a0"].tolist() == after


@pytest.mark.instruction("red")
@pytest.mark.parametrize(("kind", "dtype"), [("s32", np.int32), ("s64", np.int64), ("u64", np.uint64)])
def test_signed_and_wide_minimum(
    kind: str, dtype: type[np.generic], launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    size = np.dtype(dtype).itemsize
    register, bits = ("%r1", "b32") if size == 4 else ("%d9", "b64")
    body = f"mul.wide.u32 %d1, %tid1, {size}; add.s64 %d2, %p1, %d1; ld.global.{bits} {register}, [%d2]; red.global.min.{kind} [%p0], {register}; ret;"
    values = rng.integers(-(2**31), 2**31, 64).astype(dtype)
    start = np.array([np.iinfo(dtype).max], dtype)
    assert launch(kernel(body, 2), start, values, grid=(2,)).arrays["a0"][0] == values.min()


@pytest.mark.instruction("atom")
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_compare_and_swap_lets_one_lane_win(kind: str, launch: Launch, kernel: Text) -> None:
    result, value = ("%r2", "%r1") if kind == "b32" else ("%d2", "%d1")
    body = f"""
    add.u32 %r1, %tid1, 1; cvt.u64.u32 %d1, %r1; atom.global.cas.{kind} {result}, [%p0], 0, {value};
    {"cvt.u32.u64 %r2, %d2;" if kind == "b64" else ""} add.s64 %d3, %p1, %off4; st.global.u32 [%d3], %r2; ret;
    """
    lock = np.zeros(1, np.uint32 if kind == "b32" else np.uint64)
    result_ = launch(kernel(body, 2), lock, np.zeros(64, np.uint32), grid=(2,))
    assert result_.arrays["a0"][0] == 1
    assert result_.arrays["a1"].tolist() == [0] + [1] * 63


@pytest.mark.instruction("atom")
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_floats_are_added_one_after_the_other(
    kind: str, dtype: type[np.generic], launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    size = np.dtype(dtype).itemsize
    register, old = ("%f1", "%f2") if kind == "f32" else ("%g1", "%g2")
    body = f"""
    mul.wide.u32 %d1, %tid1, {size}; add.s64 %d2, %p1, %d1; ld.global.{kind} {register}, [%d2];
    atom.global.add.{kind} {old}, [%p0], {register}; add.s64 %d3, %p2, %d1; st.global.{kind} [%d3], {old}; ret;
    """
    values = (rng.standard_normal(96) * 1e3).astype(dtype)
    result = launch(kernel(body, 3), np.ones(1, dtype), values, np.zeros(96, dtype), grid=(3,))
    chain = np.add.accumulate(np.concatenate((np.ones(1, dtype), values)))
    assert np.array_equal(result.arrays["a2"], chain[:-1])
    assert result.arrays["a0"][0] == chain[-1]


def test_pairs_of_halves_are_added_together(launch: Launch, kernel: Text) -> None:
    body = "mov.b32 %r1, {%h1, %h2}; mov.b32 %r2, 0x40003C00; atom.global.add.noftz.f16x2 %r3, [%p0], %r2; ret;"
    result = launch(kernel(body), np.zeros(2, np.float16), grid=(2,))
    assert result.arrays["a0"].tolist() == [64.0, 128.0]


def test_shared_atomics_stay_in_their_block(launch: Launch, kernel: Text) -> None:
    body = """
    .shared .align 4 .u32 total;
    setp.eq.u32 %q1, %r9, %r9; mov.u32 %r1, %tid.x; setp.eq.u32 %q2, %r1, 0; @%q2 st.shared.u32 [total], 0; bar.sync 0;
    atom.shared.add.u32 %r2, [total], %r1; bar.sync 0; ld.shared.u32 %r3, [total]; st.global.u32 [%at4], %r3; ret;
    """
    result = launch(kernel(body), np.zeros(192, np.uint32), grid=(3,), block=(64,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [64 * 63 // 2] * 192


def test_an_atomic_outside_its_array_is_an_out_of_bounds_write(launch: Launch, kernel: Text) -> None:
    result = launch(kernel("red.global.add.u32 [%at4+4], 1; ret;"), np.zeros(32, np.uint32))
    assert [finding.code for finding in result.findings] == ["out-of-bounds-write"]
    assert result.arrays["a0"].tolist() == [0] + [1] * 31
