from __future__ import annotations

from dataclasses import replace

from kernelmate.checks.guards.suspicious_speedup import explained, find
from kernelmate.records import Counters, Speedup

BEFORE = Counters("emulated", 1000, 32000, 1000, 4000, 0, 1, 4000, 1000, 0, 0, 0, 1_000_000)


def measured(median: float) -> Speedup:
    return Speedup("measured", median, (median * 0.98, median * 1.02))


def predicted(median: float) -> Speedup:
    return Speedup("predicted", median, (median / 1.2, median * 1.2))


def test_ten_times_faster_with_equal_counters_is_suspicious() -> None:
    said = find(measured(10.0), predicted(1.0), BEFORE, BEFORE)
    assert said is not None
    assert said.startswith("10 times faster, where fewer bytes and instructions explain 1 times")


def test_an_eighth_of_the_sectors_explains_eight_times() -> None:
    assert find(measured(8.0), None, BEFORE, replace(BEFORE, global_load_sectors=4000)) is None


def test_a_prediction_that_knows_of_occupancy_explains_what_counters_do_not() -> None:
    assert find(measured(10.0), predicted(6.0), BEFORE, BEFORE) is None


def test_doing_without_shared_memory_altogether_may_explain_anything() -> None:
    assert explained(BEFORE, replace(BEFORE, shared_load_wavefronts=0)) == float("inf")
    assert find(measured(50.0), None, BEFORE, replace(BEFORE, shared_load_wavefronts=0)) is None


def test_small_speedups_predictions_and_unknown_counters_are_left_alone() -> None:
    assert find(measured(1.9), predicted(0.1), BEFORE, BEFORE) is None
    assert find(Speedup("predicted", 100.0, (90.0, 110.0)), None, BEFORE, BEFORE) is None
    assert find(measured(100.0), None, None, BEFORE) is None
    assert find(None, None, BEFORE, BEFORE) is None
