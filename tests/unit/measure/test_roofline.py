"""Position of launches under the roofs of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.compiler.targets import TARGETS, find_target
from kernelmate.measure.predict import predict, work_of
from kernelmate.measure.roofline import place, table_roofs
from kernelmate.records import Roofs, Timing, Work

MANY = 1 << 24
ROOFS = Roofs("table", 1000.0, 4000.0, 16000.0, {"fp32": 50.0, "fp64": 25.0, "tensor": 500.0})
L2 = 50 << 20


def measured(median_us: float, cold_us: float | None = None) -> Timing:
    return Timing("measured", median_us, (median_us, median_us), cold_us, None, 100, 1980, False)


def test_a_copy_that_is_large_stands_under_the_memorys_roof(h100, compiled, shape, ran) -> None:
    work = work_of(h100, compiled(), shape(MANY), ran(MANY))
    timing = predict(h100, compiled(), shape(MANY), ran(MANY))
    placed = place(work, table_roofs(h100), timing, h100.l2_bytes)
    assert (placed.bound, work.limiter) == ("memory", "dram")
    assert placed.intensity == pytest.approx(2 / 8)
    assert placed.ridge == pytest.approx(66.9e12 / 3350e9)
    assert placed.dram_us == pytest.approx(8 * MANY / 3.35e6)
    assert placed.kind == "predicted"
    assert 0.5 < placed.cold < 1


def test_shares_are_of_the_roof_that_is_reached_first() -> None:
    work = Work({"fp32": 4e9}, dram_bytes=20e6, l1_bytes=160e6, l2_bytes=40e6, limiter="fp32")
    placed = place(work, ROOFS, measured(100.0, 125.0), L2)
    assert (placed.dram_us, placed.l2_us, placed.l1_us, placed.compute_us) == pytest.approx((20, 10, 10, 80))
    assert placed.cold == pytest.approx(80 / 125)
    assert placed.warm == pytest.approx(80 / 100)
    assert placed.tflops == pytest.approx(40)
    assert placed.intensity == pytest.approx(200)
    assert placed.ridge == pytest.approx(50)
    assert placed.bound == "compute"


def test_what_l2_cannot_hold_comes_from_dram_each_time() -> None:
    work = Work({}, dram_bytes=150e6 + L2, l1_bytes=1, l2_bytes=1, limiter="dram")
    placed = place(work, ROOFS, measured(300.0, 400.0), L2)
    assert placed.warm == pytest.approx(150 / 300)
    assert placed.cold == pytest.approx((150e6 + L2) / 1e6 / 400)


def test_precisions_have_pipes_of_their_own() -> None:
    mixed = Work({"fp32": 50e6, "fp64": 50e6}, 1, 1, 1, "fp64")
    placed = place(mixed, ROOFS, None, L2)
    assert placed.compute_us == pytest.approx(2)
    assert placed.peak_tflops == pytest.approx(50)
    assert (placed.kind, placed.tflops, placed.warm, placed.cold) == (None, None, None, None)


def test_without_operations_there_is_no_division_by_nothing() -> None:
    placed = place(Work({}, 0, 0, 0, "launch"), ROOFS, measured(2.0), L2)
    assert placed.intensity is None
    assert placed.warm is None
    assert placed.peak_tflops == 50
    assert placed.bound == "latency"


@given(st.floats(1, 1e6), st.floats(0, 1e12), st.floats(1, 1e10))
def test_twice_the_time_is_half_the_share(time: float, flops: float, moved: float) -> None:
    work = Work({"fp32": flops}, moved, moved, moved, "dram")
    once, twice = (place(work, ROOFS, measured(t, t), L2) for t in (time, 2 * time))
    assert twice.warm == pytest.approx(once.warm / 2)
    assert twice.cold == pytest.approx(once.cold / 2)


def test_every_gpu_of_the_table_has_roofs_in_the_right_order() -> None:
    for target in TARGETS:
        roofs = table_roofs(target)
        assert roofs.dram_gbps < roofs.l2_gbps < roofs.l1_gbps, target.name
        assert roofs.tflops["fp64"] < roofs.tflops["fp32"] <= roofs.tflops["fp16"] < roofs.tflops["tensor"], target.name


def test_tensor_cores_are_as_the_data_sheets_say() -> None:
    # A100: 312, T4: 65, L4: 121 TFLOPS of dense fp16 at boost clock.
    stated = {"A100 80GB SXM": 312, "T4": 65, "L4": 121}
    for name, tflops in stated.items():
        assert find_target(name).tensor_tflops == pytest.approx(tflops, rel=0.01)


def test_matrix_instructions_count_all_their_products(compiled, ran) -> None:
    from kernelmate.measure.instructions import classify

    one = classify("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert one is not None
    assert (one.kind, one.flops * 32) == ("tensor", 2 * 16 * 8 * 16)


def test_a_time_that_is_no_number_gives_no_share() -> None:
    endless = replace(measured(1.0), median_us=float("inf"), cold_l2_us=float("nan"))
    placed = place(Work({"fp32": 1.0}, 1, 1, 1, "dram"), ROOFS, endless, L2)
    assert (placed.kind, placed.warm, placed.cold) == (None, None, None)
