"""Guards of times: clocks, repeated launches, speed-ups and outputs that cannot be, least time of a launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import RunResult
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.guards.clocks import find as find_clocks
from kernelmate.checks.guards.repeated_launches import find as find_repeated_launches
from kernelmate.checks.guards.sub_physical_time import MinimumWork, least_cold, least_warm, need_of
from kernelmate.checks.guards.sub_physical_time import find as find_sub_physical_time
from kernelmate.checks.guards.suspicious_speedup import explained
from kernelmate.checks.guards.suspicious_speedup import find as find_suspicious_speedup
from kernelmate.checks.guards.timed_output import find as find_timed_output
from kernelmate.checks.tolerances import MaximumErrors
from kernelmate.compiler import find_target
from kernelmate.compiler.targets import peaks_of, with_raised_peaks
from kernelmate.records import Argument, Contract, Counters, Speedup, Timing


def repeats(gpu: float, host: float) -> RepeatedLaunch:
    return RepeatedLaunch(100, gpu, gpu, None, {}, (gpu, host))


def test_time_stamps_that_the_host_cannot_follow_are_told() -> None:
    said = find_clocks(repeats(1.2, 480.0))
    assert said is not None
    assert said.startswith("a launch takes 480 us by the host's clock and 1.2 us by the GPU's")
    assert find_clocks(repeats(-3.0, 480.0)) is not None


@pytest.mark.parametrize(("gpu", "host"), [(1.2, 3.4), (1.2, 90.0), (1000.0, 1040.0), (100.0, 450.0)])
def test_what_launching_adds_is_no_finding(gpu: float, host: float) -> None:
    assert find_clocks(repeats(gpu, host)) is None


def test_launches_that_were_not_repeated_tell_nothing() -> None:
    assert find_clocks(RepeatedLaunch(2, None, None, None, {})) is None


def repeated_launches_repeats(own: float | None, afresh: float | None, scrubbed: float | None = None) -> RepeatedLaunch:
    return RepeatedLaunch(100, own, afresh, scrubbed, {})


def test_a_launch_that_skips_its_work_over_its_own_results_is_found() -> None:
    said = find_repeated_launches(repeated_launches_repeats(1.5, 480.0))
    assert said is not None
    assert said.startswith("a launch takes 1.5 us right after an equal one, and 480 us where outputs and")


def test_a_launch_that_needs_what_was_left_in_shared_memory_is_found() -> None:
    said = find_repeated_launches(repeated_launches_repeats(5.0, 5.1, 90.0))
    assert said is not None
    assert "where shared memory was overwritten" in said
    assert find_repeated_launches(repeated_launches_repeats(5.0, 5.1, 12.0)) is None


@pytest.mark.parametrize(
    ("own", "afresh"),
    [(226.0, 226.3), (3.65, 3.56), (1.4, 1.2), (1.2, 3.9), (10.0, 18.0), (20.0, 1.0), (None, 5.0), (5.0, None)],
)
def test_what_caches_and_launch_gaps_make_is_no_finding(own: float | None, afresh: float | None) -> None:
    assert find_repeated_launches(repeated_launches_repeats(own, afresh)) is None


BEFORE = Counters("emulated", 1000, 32000, 1000, 4000, 0, 1, 4000, 1000, 0, 0, 0, 1_000_000)


def measured(median: float) -> Speedup:
    return Speedup("measured", median, (median * 0.98, median * 1.02))


def predicted(median: float) -> Speedup:
    return Speedup("predicted", median, (median / 1.2, median * 1.2))


def test_ten_times_faster_with_equal_counters_is_suspicious() -> None:
    said = find_suspicious_speedup(measured(10.0), predicted(1.0), BEFORE, BEFORE)
    assert said is not None
    assert said.startswith("10 times faster, where fewer bytes and instructions explain 1 times")


def test_an_eighth_of_the_sectors_explains_eight_times() -> None:
    assert find_suspicious_speedup(measured(8.0), None, BEFORE, replace(BEFORE, global_load_sectors=4000)) is None


def test_a_prediction_that_knows_of_occupancy_explains_what_counters_do_not() -> None:
    assert find_suspicious_speedup(measured(10.0), predicted(6.0), BEFORE, BEFORE) is None


def test_doing_without_shared_memory_altogether_may_explain_anything() -> None:
    assert explained(BEFORE, replace(BEFORE, shared_load_wavefronts=0)) == float("inf")
    assert find_suspicious_speedup(measured(50.0), None, BEFORE, replace(BEFORE, shared_load_wavefronts=0)) is None


def test_small_speedups_predictions_and_unknown_counters_are_left_alone() -> None:
    assert find_suspicious_speedup(measured(1.9), predicted(0.1), BEFORE, BEFORE) is None
    assert find_suspicious_speedup(Speedup("predicted", 100.0, (90.0, 110.0)), None, BEFORE, BEFORE) is None
    assert find_suspicious_speedup(measured(100.0), None, None, BEFORE) is None
    assert find_suspicious_speedup(None, None, BEFORE, BEFORE) is None


CONTRACT = Contract(
    "k", ({"n": 4},), ("1",), ("32",), (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)))
)
WANT = np.array([1.0, 2.0, 3.0, 4.0])
JUDGED = {"y": WANT.astype(np.float32)}
ANSWER = ExpectedOutputs({"y": WANT}, MaximumErrors({"y": np.full(4, 1e-5)}, {"y": np.full(4, 1e-2)}))


def test_an_output_that_stays_spoilt_is_found_with_its_first_place() -> None:
    left = WANT.astype(np.float32)
    left[2] = -2.0
    assert find_timed_output(CONTRACT, JUDGED, ANSWER, {"y": left}) == (
        "y",
        "timed launches leave another y than judged ones (element [2]: -2.0, not 3.0): not each launch does the work",
    )


def test_another_order_of_adding_is_within_the_tolerance() -> None:
    left = WANT.astype(np.float32)
    left[2] = np.nextafter(left[2], np.float32(4))
    assert find_timed_output(CONTRACT, JUDGED, ANSWER, {"y": left}) is None


def test_equal_outputs_and_an_unknown_answer_say_nothing() -> None:
    assert find_timed_output(CONTRACT, JUDGED, ANSWER, {"y": WANT.astype(np.float32)}) is None
    assert find_timed_output(CONTRACT, JUDGED, None, {"y": np.zeros(4, np.float32)}) is None


H100 = find_target("H100 SXM")
PEAKS = peaks_of(H100)


def timing(median: float, cold: float | None = None, kind: str = "measured") -> Timing:
    return Timing(kind, median, (median * 0.99, median * 1.01), cold, None, 100, 1980, False)


def test_a_warm_launch_of_64_mb_cannot_take_a_microsecond() -> None:
    said = find_sub_physical_time(timing(1.0), MinimumWork(64e6, 0.0), PEAKS, H100.l2_bytes)
    assert said is not None
    assert said.startswith("1.01 us is not possible")


def test_a_warm_launch_may_be_faster_than_dram_as_far_as_l2_holds_its_bytes() -> None:
    need = MinimumWork(32e6, 16e6)
    dram_us = 48e6 / (H100.memory_gbps * 1e3)
    assert find_sub_physical_time(timing(dram_us / 2), need, PEAKS, H100.l2_bytes) is None


def test_a_cold_time_is_held_against_dram() -> None:
    need = MinimumWork(32e6, 0.0)
    least = 32e6 / (H100.memory_gbps * 1e3)
    assert find_sub_physical_time(timing(8.0, cold=1.1 * least), need, PEAKS, H100.l2_bytes) is None
    said = find_sub_physical_time(timing(8.0, cold=0.5 * least), need, PEAKS, H100.l2_bytes)
    assert said is not None
    assert "emptied L2" in said


def test_operations_bound_a_launch_that_moves_nothing() -> None:
    need = MinimumWork(0.0, 0.0, {"fp32": 2.0 * 4096**3})
    at_peak = 2.0 * 4096**3 / (H100.fp32_tflops * 1e6)
    assert least_warm(need, PEAKS, H100.l2_bytes).us == pytest.approx(at_peak)
    assert find_sub_physical_time(timing(0.7 * at_peak), need, PEAKS, H100.l2_bytes) is not None
    assert find_sub_physical_time(timing(1.05 * at_peak), need, PEAKS, H100.l2_bytes) is None


def test_what_is_predicted_is_never_called_impossible() -> None:
    assert find_sub_physical_time(timing(0.001, kind="predicted"), MinimumWork(1e9, 1e9), PEAKS, H100.l2_bytes) is None


def test_writes_may_stay_in_l2_after_a_cold_launch() -> None:
    assert least_cold(MinimumWork(0.0, 40e6), PEAKS, H100.l2_bytes).us == 0.0
    assert least_cold(MinimumWork(0.0, 152_428_800.0), PEAKS, H100.l2_bytes).us == pytest.approx(1e8 / 3.352e6)


@given(
    st.floats(0, 1e11), st.floats(0, 1e11), st.floats(0, 1e14), st.sampled_from(["T4", "A100 80GB SXM", "H100 SXM", "B200"])
)  # fmt: skip
def test_no_bound_is_above_what_peak_rates_take(read: float, written: float, flops: float, name: str) -> None:
    target = find_target(name)
    peaks = peaks_of(target)
    need = MinimumWork(read, written, {"fp32": flops})
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
    assert need_of(contract("in", "out"), result, {}) == MinimumWork(4000.0, 4000.0, {})


def test_a_launch_reads_no_more_than_it_has_loaded() -> None:
    arrays = {"a0": np.zeros(1000, np.float32), "a1": np.zeros(1000, np.float32)}
    result = RunResult(arrays, counters=counters(2), footprint_bytes=8000, reads=frozenset({"a0"}))
    assert need_of(contract("in", "out"), result, {}).read_bytes == 64.0


def test_a_launch_that_was_not_counted_still_has_to_write_its_outputs() -> None:
    arrays = {"a0": np.zeros(1000, np.float32), "a1": np.zeros(1000, np.float32)}
    assert need_of(contract("in", "out"), RunResult(arrays), {"fp32": 5.0}) == MinimumWork(0.0, 4000.0, {"fp32": 5.0})


def test_a_gpu_that_states_more_than_the_tables_row_raises_the_peaks() -> None:
    h200 = with_raised_peaks(PEAKS, H100, memory_gbps=4800, sms=132, clock_mhz=1980)
    assert (h200.dram_bytes, h200.l2_bytes) == (4.8e6, PEAKS.l2_bytes)
    smaller = with_raised_peaks(PEAKS, H100, memory_gbps=2039, sms=114, clock_mhz=1755)
    assert smaller == PEAKS
