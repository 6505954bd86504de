from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import RunResult
from kernelmate.checks.guards.sub_physical_time import LeastWork, find, least_cold, least_warm, need_of
from kernelmate.compiler import find_target
from kernelmate.compiler.targets import peaks_of, raised
from kernelmate.records import Argument, Contract, Counters, Timing

H100 = find_target("H100 SXM")
PEAKS = peaks_of(H100)


def timing(median: float, cold: float | None = None, kind: str = "measured") -> Timing:
    return Timing(kind, median, (median * 0.99, median * 1.01), cold, None, 100, 1980, False)


def test_a_warm_launch_of_64_mb_cannot_take_a_microsecond() -> None:
    said = find(timing(1.0), LeastWork(64e6, 0.0), PEAKS, H100.l2_bytes)
    assert said is not None
    assert said.startswith("1.01 us is not possible")


def test_a_warm_launch_may_be_faster_than_dram_as_far_as_l2_holds_its_bytes() -> None:
    need = LeastWork(32e6, 16e6)
    dram_us = 48e6 / (H100.memory_gbps * 1e3)
    assert find(timing(dram_us / 2), need, PEAKS, H100.l2_bytes) is None


def test_a_cold_time_is_held_against_dram() -> None:
    need = LeastWork(32e6, 0.0)
    least = 32e6 / (H100.memory_gbps * 1e3)
    assert find(timing(8.0, cold=1.1 * least), need, PEAKS, H100.l2_bytes) is None
    said = find(timing(8.0, cold=0.5 * least), need, PEAKS, H100.l2_bytes)
    assert said is not None
    assert "emptied L2" in said


def test_operations_bound_a_launch_that_moves_nothing() -> None:
    need = LeastWork(0.0, 0.0, {"fp32": 2.0 * 4096**3})
    at_peak = 2.0 * 4096**3 / (H100.fp32_tflops * 1e6)
    assert least_warm(need, PEAKS, H100.l2_bytes).us == pytest.approx(at_peak)
    assert find(timing(0.7 * at_peak), need, PEAKS, H100.l2_bytes) is not None
    assert find(timing(1.05 * at_peak), need, PEAKS, H100.l2_bytes) is None


def test_what_is_predicted_is_never_called_impossible() -> None:
    assert find(timing(0.001, kind="predicted"), LeastWork(1e9, 1e9), PEAKS, H100.l2_bytes) is None


def test_writes_may_stay_in_l2_after_a_cold_launch() -> None:
    assert least_cold(LeastWork(0.0, 40e6), PEAKS, H100.l2_bytes).us == 0.0
    assert least_cold(LeastWork(0.0, 152_428_800.0), PEAKS, H100.l2_bytes).us == pytest.approx(1e8 / 3.352e6)


@given(
    st.floats(0, 1e11), st.floats(0, 1e11), st.floats(0, 1e14), st.sampled_from(["T4", "A100 80GB SXM", "H100 SXM", "B200"])
)  # fmt: skip
def test_no_bound_is_above_what_peak_rates_take(read: float, written: float, flops: float, name: str) -> None:
    target = find_target(name)
    peaks = peaks_of(target)
    need = LeastWork(read, written, {"fp32": flops})
    most = (read + written) / peaks.dram_bytes + flops / peaks.flops["fp32"]
    warm, cold = least_warm(need, peaks, target.l2_bytes).us, least_cold(need, peaks, target.l2_bytes).us
    assert 0 <= warm <= most * (1 + 1e-9) + (read + written) / peaks.l2_bytes
    assert 0 <= cold <= most * (1 + 1e-9)
    assert warm <= cold * (1 + 1e-9) + max(read, written) / peaks.l2_bytes


def contract(*directions: str) -> Contract:
    args = tuple(Argument(f"a{i}", d, "float32", ("n",)) for i, d in enumerate(directions))
    return Contract("k", ({"n": 1000},), ("1",), ("32",), args)


def counters(load_sectors: int) -> Counters:
    return Counters("emulated", 1, load_sectors, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)


def test_what_a_launch_needs_leaves_out_what_it_only_writes() -> None:
    result = RunResult(
        {"a0": np.zeros(1000, np.float32), "a1": np.zeros(1000, np.float32)},
        counters=counters(10_000),
        footprint_bytes=8000,
        reads=frozenset({"a0"}),
    )
    assert need_of(contract("in", "out"), result, {}) == LeastWork(4000.0, 4000.0, {})


def test_a_launch_reads_no_more_than_it_has_loaded() -> None:
    arrays = {"a0": np.zeros(1000, np.float32), "a1": np.zeros(1000, np.float32)}
    result = RunResult(arrays, counters=counters(2), footprint_bytes=8000, reads=frozenset({"a0"}))
    assert need_of(contract("in", "out"), result, {}).read_bytes == 64.0


def test_a_launch_that_was_not_counted_still_has_to_write_its_outputs() -> None:
    arrays = {"a0": np.zeros(1000, np.float32), "a1": np.zeros(1000, np.float32)}
    assert need_of(contract("in", "out"), RunResult(arrays), {"fp32": 5.0}) == LeastWork(0.0, 4000.0, {"fp32": 5.0})


def test_a_gpu_that_states_more_than_the_tables_row_raises_the_peaks() -> None:
    h200 = raised(PEAKS, H100, memory_gbps=4800, sms=132, clock_mhz=1980)
    assert (h200.dram_bytes, h200.l2_bytes) == (4.8e6, PEAKS.l2_bytes)
    smaller = raised(PEAKS, H100, memory_gbps=2039, sms=114, clock_mhz=1755)
    assert smaller == PEAKS
