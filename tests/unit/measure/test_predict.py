from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import RunResult
from kernelmate.measure.constants import L2_BYTES_PER_SM, UNIFIED_L1_BYTES, for_capability
from kernelmate.measure.predict import ALONE_US, explain, operations, predict, stored_fit
from kernelmate.records import MOSTLY_LAUNCHING, Compiled, Counters, LaunchShape, Resources, Target

MANY = 1 << 24


def test_a_prediction_is_called_one(h100, compiled, shape, ran) -> None:
    timing = predict(h100, compiled(), shape(MANY), ran(MANY))
    assert timing.kind == "predicted"
    assert (timing.runs, timing.replay_period_us, timing.sm_clock_mhz, timing.throttled) == (None, None, None, None)
    assert timing.ci95_us[0] < timing.median_us < timing.ci95_us[1]
    assert timing.ci95_us[1] / timing.ci95_us[0] >= 2
    assert timing.cold_l2_us is not None
    assert timing.cold_l2_us >= timing.median_us


def test_a_large_copy_goes_at_the_memorys_speed(h100, compiled, shape, ran) -> None:
    timing = predict(h100, compiled(), shape(MANY), ran(MANY))
    at_peak = 8 * MANY / (h100.memory_gbps * 1e3)
    assert at_peak < timing.median_us < 1.8 * at_peak


def test_a_launch_of_less_than_two_empty_kernels_is_said_to_mostly_launch(h100, compiled, shape, ran) -> None:
    empty = stored_fit().launch_floor + ALONE_US
    for elements in (32, MANY):
        timing = predict(h100, compiled(), shape(elements), ran(elements))
        said = any(note.startswith(MOSTLY_LAUNCHING) for note in timing.notes)
        assert said is (timing.median_us < 2 * empty)
        assert said is (elements == 32)


def test_a_small_launch_costs_the_launch(h100, compiled, shape, ran) -> None:
    timing = predict(h100, compiled(), shape(32), ran(32))
    floor = stored_fit().launch_floor
    assert floor <= timing.median_us - ALONE_US < 2 * floor + 0.2


def test_what_fits_into_l2_is_faster_warm_than_cold(h100, compiled, shape, ran) -> None:
    timing = predict(h100, compiled(), shape(1 << 21), ran(1 << 21))
    assert timing.cold_l2_us is not None
    assert timing.cold_l2_us - ALONE_US > 1.3 * (timing.median_us - ALONE_US)


def test_the_same_counts_give_the_same_time(h100, compiled, shape, ran) -> None:
    assert predict(h100, compiled(), shape(4096), ran(4096)) == predict(h100, compiled(), shape(4096), ran(4096))


def worse(target, compiled, shape, before: RunResult, after: RunResult, elements: int = MANY) -> float:
    """Returns the predicted time of the second run over that of the first."""
    first, second = (predict(target, compiled, shape(elements), run).median_us for run in (before, after))
    return second / first


def test_uncoalesced_stores_cost(h100, compiled, shape, ran) -> None:
    strided = ran(MANY, global_store_sectors=MANY)
    assert worse(h100, compiled(), shape, ran(MANY), strided) > 1.5


def test_bank_conflicts_cost(h100, compiled, shape, ran) -> None:
    clean = ran(1 << 20, shared_load_wavefronts=1 << 17)
    conflicts = ran(1 << 20, shared_load_wavefronts=1 << 22, bank_conflicts=(1 << 22) - (1 << 17))
    assert worse(h100, compiled(), shape, clean, conflicts, 1 << 20) > 2


def test_atomics_on_few_addresses_cost(h100, compiled, shape, ran) -> None:
    assert worse(h100, compiled(), shape, ran(1 << 20), ran(1 << 20, global_atomic_requests=1 << 18), 1 << 20) > 2


def double(ptx: str, times: int) -> str:
    return ptx.replace(
        "fma.rn.f32 	%f2, %f1, %f1, %f1;",
        "fma.rn.f32 	%f2, %f1, %f1, %f1;\n" + "	fma.rn.f64 	%fd1, %fd2, %fd2, %fd2;\n" * times,
    )


def test_double_precision_costs_far_more_where_it_is_slow(h100, rtx4090, compiled, shape, ran) -> None:
    single, doubled = compiled(), compiled(double(compiled().ptx, 32))
    counted = dict.fromkeys(("entry", ".8", "$L__BB0_2"), 1 << 20)
    run = ran(1 << 20, block_counts=counted)

    def cost(target: Target) -> float:
        return (
            predict(target, doubled, shape(1 << 20), run).median_us
            / predict(target, single, shape(1 << 20), run).median_us
        )

    assert cost(rtx4090) > 5
    assert cost(rtx4090) > 3 * cost(h100)


def test_low_occupancy_costs_where_latency_is_all_there_is(h100, compiled, shape, ran) -> None:
    full = predict(h100, compiled(), shape(1 << 22), ran(1 << 22)).median_us
    starved = predict(h100, compiled(shared_bytes=100 * 1024), shape(1 << 22), ran(1 << 22)).median_us
    assert starved > 1.5 * full


def test_less_shared_memory_is_never_slower(h100, compiled, shape, ran) -> None:
    times = [
        predict(h100, compiled(shared_bytes=kib * 1024), shape(1 << 22), ran(1 << 22)).median_us
        for kib in (0, 8, 32, 64, 100)
    ]
    assert times == sorted(times)


def test_a_ragged_last_wave_costs(h100, compiled, ran) -> None:
    heavy = compiled(
        "".join(
            compiled().ptx.replace("fma.rn.f32 	%f2, %f1, %f1, %f1;", "fma.rn.f32 	%f2, %f1, %f1, %f1;\n" * 4000)
        )
    )
    even, ragged = LaunchShape((132, 1, 1), (1024, 1, 1)), LaunchShape((133, 1, 1), (1024, 1, 1))
    one = explain(h100, heavy, even, ran(132 * 1024)).parts_us["fp32"]
    two = explain(h100, heavy, ragged, ran(133 * 1024)).parts_us["fp32"]
    assert two == pytest.approx(2 * one, rel=0.01)


def test_partly_filled_warps_cost(h100, compiled, ran) -> None:
    whole = explain(h100, compiled(), LaunchShape((1024, 1, 1), (32, 1, 1)), ran(1024 * 32))
    part = explain(h100, compiled(), LaunchShape((8192, 1, 1), (4, 1, 1)), ran(1024 * 32))
    assert part.parts_us["issue"] > 4 * whole.parts_us["issue"]


def test_one_block_of_work_is_bound_by_latency(h100, compiled, shape, ran) -> None:
    looping = ran(256, block_counts={"entry": 256, ".8": 256 * 10_000, "$L__BB0_2": 256})
    assert explain(h100, compiled(), shape(256), looping).limiter == "latency"


def test_a_section_of_one_thread_takes_as_long_as_that_thread(h100, compiled, shape, ran) -> None:
    """In each block thread 0 does what all 256 threads could share: as many instructions, one after another."""
    blocks = 132 * 8 * 4
    counted = {"block_counts": {"entry": blocks * 256, ".8": blocks * 256 * 8, "$L__BB0_2": blocks * 256}}
    each = 8 + 8 * 6 + 1
    total = blocks * 256 * each
    shared, serial = (
        replace(ran(blocks * 256, **counted), ptx_instructions=total, longest_thread=longest)
        for longest in (each, 9 + 256 * 48)
    )
    parts = [explain(h100, compiled(), shape(blocks * 256), run).parts_us["latency"] for run in (shared, serial)]
    assert parts[1] > 100 * parts[0]


def test_a_thread_so_long_that_few_blocks_can_have_one_lengthens_one_wave(h100, compiled, shape, ran) -> None:
    blocks, each = 132 * 8 * 64, 15
    total, longest = blocks * 256 * each, 256 * 64 * each  # of 64 blocks, one at most
    runs = [replace(ran(blocks * 256), ptx_instructions=total, longest_thread=one) for one in (each, longest)]
    before, after = (explain(h100, compiled(), shape(blocks * 256), run) for run in runs)
    ratio = after.parts_us["latency"] / before.parts_us["latency"]
    assert 0.25 < ratio / (longest / each / before.rounds) < 1  # one of the waves


@given(st.integers(0, 24), st.sampled_from([32, 64, 128, 256, 512, 1024]), st.integers(0, 8))
def test_more_of_anything_is_never_faster(power: int, block: int, factor: int) -> None:
    elements = 1 << power
    target = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "test")
    kernel = Compiled("k", None, "k", "sm_90", "", True, (), "", b"", None, Resources(16, 0, 0, 0, 0, 1024, 1))
    launch = LaunchShape((-(-elements // block), 1, 1), (block, 1, 1))
    sectors = -(-elements // 8)
    few = Counters("emulated", 1, sectors, 1, sectors, 0, 1, 1, 1, 0, None, 0, 0)
    base = predict(target, kernel, launch, RunResult({}, counters=few, footprint_bytes=sectors * 64))
    for name in (
        "global_load_sectors",
        "global_store_sectors",
        "global_atomic_requests",
        "shared_load_wavefronts",
        "divergent_branches",
    ):
        more = replace(few, **{name: getattr(few, name) + factor * sectors})
        timing = predict(target, kernel, launch, RunResult({}, counters=more, footprint_bytes=sectors * 64))
        assert timing.median_us >= base.median_us * 0.999, name
        assert 0 < timing.median_us < float("inf")


def test_a_run_without_counts_still_gets_a_time(h100, compiled, shape) -> None:
    timing = predict(h100, compiled(), shape(1024), RunResult({}))
    assert 0 < timing.median_us < 100


def test_operations_are_counted_by_precision(compiled, ran) -> None:
    assert operations(compiled(), ran(100)) == {"fp32": 200}


def test_every_constant_says_where_it_comes_from() -> None:
    for table in (L2_BYTES_PER_SM, UNIFIED_L1_BYTES):
        assert all(constant.source and constant.value > 0 for constant in table.values())
    assert for_capability(UNIFIED_L1_BYTES, (12, 1)) == 128 * 1024
    assert for_capability(UNIFIED_L1_BYTES, (7, 0)) == 96 * 1024
