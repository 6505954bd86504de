"""Atomics as if lanes took turns: the sum, and every old value."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import RunResult, UnsupportedInstruction

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


ORDERS = ["", ".relaxed.gpu", ".acquire.cta", ".release.sys", ".acq_rel.cluster", ".relaxed.sys", ".acq_rel.gpu"]


@pytest.mark.instruction("atom", "red")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("action", "kind"),
    [("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "s64"), ("max", "u32"), ("min", "u64"), ("and", "b64"),
     ("or", "b32"), ("xor", "b64"), ("exch", "b64"), ("inc", "u32"), ("dec", "u32")],
)  # fmt: skip
def test_every_operation_type_order_and_scope(
    action: str, kind: str, order: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    bits = int(kind[1:])
    size = bits // 8
    value, old = ("%r1", "%r2") if bits == 32 else ("%d8", "%d9")
    body = f"""
    rem.u32 %r8, %tid1, 5; mul.wide.u32 %d1, %r8, {size}; add.s64 %d1, %p0, %d1;
    mul.wide.u32 %d2, %tid1, {size}; add.s64 %d3, %p1, %d2; ld.global.b{bits} {value}, [%d3];
    atom{order}.global.{action}.{kind} {old}, [%d1], {value}; add.s64 %d4, %p2, %d2; st.global.b{bits} [%d4], {old};
    RED ret;
    """
    red = f"add.s64 %d5, %d1, {5 * size}; red{order.replace('.acquire', '.relaxed').replace('.acq_rel', '.release')}.{action}.{kind} [%d5], {value};"
    body = body.replace("RED", red if action != "exch" else "")
    signed = kind[0] == "s"
    dtype = np.dtype(f"{'i' if signed else 'u'}{size}")
    memory = rng.integers(0, 2**63, 10, dtype=np.uint64).astype(dtype)
    memory[5:] = memory[:5]
    values = (rng.integers(0, 2**63, 96, dtype=np.uint64) * np.uint64(2)).astype(dtype)
    result = launch(kernel(body, 3), memory, values, np.zeros_like(values), grid=(3,))
    assert not result.findings
    after = memory.tolist()
    before = []
    for thread, item in enumerate(values.tolist()):
        place = thread % 5
        before.append(after[place])
        step = STEP[action](after[place], item) & (2**bits - 1)
        after[place] = step - 2**bits if signed and step >> (bits - 1) else step
    assert result.arrays["a2"].tolist() == before
    assert result.arrays["a0"].tolist() == (after[:5] * 2 if action != "exch" else after[:5] + memory[5:].tolist())


@pytest.mark.instruction("atom", "red")
@pytest.mark.parametrize("kind", ["f16", "bf16", "f16x2", "bf16x2"])
def test_halves_are_added_one_after_the_other_each_sum_rounded(
    kind: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    dtype = np.dtype(np.float16) if kind.startswith("f16") else np.dtype(ml_dtypes.bfloat16)
    pair = kind.endswith("x2")
    width = 2 if pair else 1
    bits = 16 * width
    value, old = ("%r1", "%r2") if pair else ("%h1", "%h2")
    body = f"""
    mul.wide.u32 %d1, %tid1, {2 * width}; add.s64 %d2, %p1, %d1; ld.global.b{bits} {value}, [%d2];
    atom.global.add.noftz.{kind} {old}, [%p0], {value}; add.s64 %d3, %p2, %d1; st.global.b{bits} [%d3], {old};
    red.relaxed.gpu.global.add.noftz.{kind} [%p0+{2 * width}], {value}; ret;
    """
    values = (rng.standard_normal((64, width)) * np.exp2(rng.integers(-8, 6, (64, width)))).astype(dtype)
    store = values.view(np.uint16)
    result = launch(kernel(body, 3), np.zeros((2, width), np.uint16), store, np.zeros_like(store), grid=(2,))
    assert not result.findings
    total = np.zeros(width, dtype)
    for row, before in zip(values, result.arrays["a2"].view(dtype), strict=True):
        assert np.array_equal(before.astype(float), total.astype(float))
        # A sum of two such numbers is exact in float64, so that one rounding follows.
        total = (total.astype(np.float64) + row.astype(np.float64)).astype(dtype)
    assert np.array_equal(result.arrays["a0"].view(dtype).astype(float), np.stack((total, total)).astype(float))


@pytest.mark.instruction("atom")
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap_of_every_width_takes_turns(
    bits: int, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    size = bits // 8
    registers = {16: "%h", 32: "%r", 64: "%d"}[bits]
    want, put, old = (f"{registers}{index}" for index in (21, 22, 23))
    loads = "".join(
        f"add.s64 %d2, %p{place}, %d1; ld.global.b{bits} {name}, [%d2];" for place, name in ((1, want), (2, put))
    )
    body = f"""
    mul.wide.u32 %d1, %tid1, {size}; {loads} and.b32 %r3, %tid1, 3; mul.wide.u32 %d3, %r3, {size}; add.s64 %d4, %p0, %d3;
    atom.acq_rel.gpu.global.cas.b{bits} {old}, [%d4], {want}, {put}; add.s64 %d5, %p3, %d1; st.global.b{bits} [%d5], {old}; ret;
    """
    dtype = np.dtype(f"u{size}")
    memory = np.array([0, 1, 2, 2**bits - 1], dtype)
    compares = rng.choice(np.array([0, 1, 2, 2**bits - 1], dtype), 256)
    puts = rng.choice(np.array([0, 1, 2, 2**bits - 1], dtype), 256)
    result = launch(kernel(body, 4), memory, compares, puts, np.zeros(256, dtype), grid=(8,))
    assert not result.findings
    cells, before = memory.tolist(), []
    for thread in range(256):
        place = thread & 3
        before.append(cells[place])
        if cells[place] == int(compares[thread]):
            cells[place] = int(puts[thread])
    assert result.arrays["a3"].tolist() == before
    assert result.arrays["a0"].tolist() == cells


@pytest.mark.instruction("atom", "red")
@pytest.mark.parametrize(
    "instruction",
    [
        "atom.global.add.v2.f32 {%f1, %f2}, [%p0], {%f3, %f4};", "atom.global.cas.b128 %d1, [%p0], %d2, %d3;",
        "atom.global.sub.u32 %r1, [%p0], 1;", "red.global.add.u32.strange [%p0], 1;", "red.async.relaxed.cluster.inc.u32 [%r1], 1;",
    ],
)  # fmt: skip
def test_forms_that_are_not_known_are_refused_by_name(instruction: str, launch: Launch, kernel: Text) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(kernel(f"{instruction} ret;"), np.zeros(4, np.uint32))
    assert instruction.split()[0].split("::")[0] in caught.value.finding.message.replace("__", "::")
