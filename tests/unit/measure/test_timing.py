"""The protocol of a timing, on a simulated GPU whose clock drifts, throttles and is watched or not."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernelmate.backends.timed import CannotCapture, CuptiUnavailable, GpuState, TimedFault
from kernelmate.measure.timing import ATTEMPTS, PERIOD_ROUNDS, REPEATS, measure, settle
from kernelmate.records import Finding, FindingCode


class SimulatedRig:
    """A GPU in arithmetic: times follow a clock that the test moves with every launch.

    Args:
        times: microseconds of each version at full clock, warm. cold: likewise with nothing in L2.
        noise: standard deviation of a launch, as a fraction. drift: fraction that time grows by in 1000 launches.
    """

    EMPTY_US = 1.2

    def __init__(self, times: Sequence[float], *, cold: float = 1.5, noise: float = 0.003, drift: float = 0.0) -> None:
        self.times, self.cold, self.noise, self.drift = times, cold, noise, drift
        self.versions = len(times)
        self.tracing = True
        self.placements, self.places = 1, [[1.0] * len(times)]
        self.placed: list[int] = []
        self.machine: tuple[str, ...] = ()
        self.uncapturable = False
        self.clocks: list[GpuState] = []
        self.usual = GpuState(1980.0, 41)
        self.launched = 0
        self.orders: list[tuple[int, ...]] = []
        self.graphs: list[tuple[int | None, int]] = []
        self.poisoned_at: int | None = None
        self.random = np.random.default_rng(3)

    def _one(self, version: int | None, cold: bool = False) -> float:
        self.launched += 1
        true = self.EMPTY_US if version is None else self.times[version] * (self.cold if cold else 1)
        return true * (1 + self.drift * self.launched / 1000) * (1 + self.noise * self.random.standard_normal())

    def durations(self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0) -> tuple[float, ...]:
        if None not in order:
            self.orders.append(tuple(order))
            self.placed.append(placement)
        where = self.places[placement]
        return tuple(self._one(version, cold) * (1 if version is None else where[version]) for version in order)

    def period(self, version: int | None, launches: int) -> float:
        if self.uncapturable and version is not None:
            raise CannotCapture("operation not permitted when stream is capturing")
        self.graphs.append((version, launches))
        mean = float(np.mean([self._one(version) for _ in range(launches)]))
        return mean + (self.EMPTY_US if version is not None else 0.0)

    def traced(self, order: Sequence[int]) -> tuple[float, ...]:
        if not self.tracing:
            raise CuptiUnavailable("CUPTI is absent")
        return tuple(self._one(version) - self.EMPTY_US for version in order)

    def condition(self) -> GpuState:
        return self.clocks.pop(0) if self.clocks else self.usual

    def poison(self) -> None:
        self.poisoned_at = self.launched

    def outputs(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"y": np.array([self.launched - (self.poisoned_at or 0)])}


@pytest.fixture(autouse=True)
def launches_cost_nothing_but_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans follow from the simulated times alone, however busy the machine is that runs the tests."""
    monkeypatch.setattr("kernelmate.measure.timing.time.perf_counter", lambda: 0.0)


TURNS = [[0, 1, 1, 0, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1, 1, 0]]


def turns_of(order: Sequence[int]) -> list[int]:
    """A block's turns: neighbours of one version may be one turn or two of the same length, the lead aside."""
    lengths = [(version, len(list(run))) for version, run in itertools.groupby(order)]
    if len(lengths) != 6:
        return []
    unit = lengths[2][1]
    lengths[0] = (lengths[0][0], unit)
    return [version for version, count in lengths for _ in range(count // unit)]


def test_two_versions_are_timed_in_the_same_blocks() -> None:
    timer = SimulatedRig([12.0, 8.0])
    seen = measure(timer, 0.2, full=True)
    before, after = seen.timings
    assert before.median_us == pytest.approx(12.0, rel=0.005)
    assert after.median_us == pytest.approx(8.0, rel=0.005)
    assert before.ci95_us[0] <= before.median_us <= before.ci95_us[1]
    assert seen.speedup is not None
    assert seen.speedup.kind == "measured"
    assert seen.speedup.ci95[0] < 1.5 < seen.speedup.ci95[1]
    assert seen.speedup.ci95[1] - seen.speedup.ci95[0] < 0.02
    blocks = [order for order in timer.orders if turns_of(order) in TURNS]
    assert [turns_of(order) for order in blocks] == TURNS * 6


def test_every_figure_says_what_it_is() -> None:
    (timing,) = measure(SimulatedRig([12.0], cold=1.7), 0.2, full=True).timings
    assert timing.kind == "measured"
    assert timing.median_us == pytest.approx(12.0, rel=0.01)
    assert timing.cupti_us == pytest.approx(12.0 - SimulatedRig.EMPTY_US, rel=0.01)
    assert timing.cold_l2_us == pytest.approx(12.0 * 1.7, rel=0.01)
    assert timing.replay_period_us == pytest.approx(12.0, rel=0.01)
    assert (timing.sm_clock_mhz, timing.temperature_c, timing.throttled) == (1980, 41, False)
    assert timing.runs is not None
    assert timing.runs >= 24
    assert timing.notes == ()


def test_sizes_beside_the_headline_are_timed_warm_only() -> None:
    timer = SimulatedRig([12.0, 12.0])
    seen = measure(timer, 0.05, full=False)
    assert [(one.cold_l2_us, one.replay_period_us) for one in seen.timings] == [(None, None)] * 2
    assert timer.graphs == []
    assert seen.speedup is not None


class SharedRig(SimulatedRig):
    """A GPU whose replays in `busy` take three times as long, and with `launches` also the launches after such a replay."""

    def __init__(self, busy: range, *, launches: bool = False) -> None:
        super().__init__([12.0])
        self.busy, self.launches, self.replays = busy, launches, 0

    def period(self, version: int | None, launches: int) -> float:
        self.replays += version is not None
        return super().period(version, launches) * (3 if version is not None and self.replays in self.busy else 1)

    def durations(self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0) -> tuple[float, ...]:
        slower = 3 if self.launches and self.replays in self.busy else 1
        return tuple(slower * one for one in super().durations(order, cold=cold, placement=placement))


def test_a_long_replay_period_is_measured_again_with_its_launches() -> None:
    (timing,) = measure(SharedRig(range(1, 1 + PERIOD_ROUNDS)), 0.2, full=True).timings
    assert timing.replay_period_us == pytest.approx(12.0, rel=0.02)
    assert timing.median_us == pytest.approx(12.0, rel=0.02)


def test_a_replay_period_that_is_always_long_is_reported() -> None:
    timer = SharedRig(range(1, 1000))
    (timing,) = measure(timer, 0.2, full=True).timings
    assert timing.replay_period_us == pytest.approx(36.0, rel=0.1)
    assert timing.median_us == pytest.approx(12.0, rel=0.02)
    assert timer.replays == ATTEMPTS * PERIOD_ROUNDS


def test_launches_that_became_as_long_as_their_replays_are_timed_so() -> None:
    (timing,) = measure(SharedRig(range(1, 1000), launches=True), 0.2, full=True).timings
    assert timing.replay_period_us == pytest.approx(36.0, rel=0.1)
    assert timing.median_us == pytest.approx(36.0, rel=0.02)


def test_a_drifting_clock_moves_both_versions_and_not_their_ratio() -> None:
    seen = measure(SimulatedRig([40.0, 40.0], drift=0.05), 0.2, full=True)
    assert seen.speedup is not None
    assert seen.speedup.ci95[0] <= 1 <= seen.speedup.ci95[1]
    assert seen.speedup.median == pytest.approx(1, abs=0.004)


def test_a_lucky_place_of_the_code_is_not_taken_for_a_faster_kernel() -> None:
    random = np.random.default_rng(4)
    claims = 0
    for _ in range(40):
        timer = SimulatedRig([10.0, 10.0], noise=0.001)
        timer.placements = 12
        timer.places = [list(1 + 0.03 * (random.random(2) < 0.5)) for _ in range(12)]
        seen = measure(timer, 0.05, full=False)
        assert seen.speedup is not None
        claims += not seen.speedup.ci95[0] <= 1 <= seen.speedup.ci95[1]
        blocks = [place for order, place in zip(timer.orders, timer.placed, strict=True) if turns_of(order) in TURNS]
        assert blocks == list(range(12))
    assert claims <= 4


def test_how_many_blocks_there_are_does_not_hang_on_what_they_show() -> None:
    quiet, noisy = SimulatedRig([100.0, 90.0], noise=0.0001), SimulatedRig([100.0, 90.0], noise=0.2)
    for timer in (quiet, noisy):
        measure(timer, 0.2, full=False)
    assert [sum(turns_of(order) in TURNS for order in timer.orders) for timer in (quiet, noisy)] == [12, 12]


def test_without_cupti_its_figure_is_absent_and_the_others_are_as_ever() -> None:
    timer = SimulatedRig([12.0, 8.0])
    timer.tracing = False
    before, after = measure(timer, 0.2, full=True).timings
    assert (before.cupti_us, after.cupti_us) == (None, None)
    assert after.median_us == pytest.approx(8.0, rel=0.01)
    assert after.notes == ()


def test_a_launch_that_cannot_be_captured_has_a_duration_and_no_period() -> None:
    timer = SimulatedRig([12.0])
    timer.uncapturable = True
    (timing,) = measure(timer, 0.2, full=True).timings
    assert timing.median_us == pytest.approx(12.0, rel=0.01)
    assert timing.replay_period_us is None
    assert "cannot be captured" in timing.notes[0]


def test_a_kernel_of_over_a_second_is_launched_a_few_times_and_labelled() -> None:
    timer = SimulatedRig([1.5e6, 1.2e6], noise=0.0005)
    seen = measure(timer, 0.2, full=True)
    assert sum(len(order) for order in timer.orders) <= 16
    assert timer.graphs == []
    assert seen.speedup is not None
    assert seen.speedup.ci95[0] < 1.25 < seen.speedup.ci95[1]
    assert seen.timings[1].notes[0].startswith("over a second: launched 4 times")


def test_a_kernel_that_is_mostly_its_own_launch_is_labelled() -> None:
    (timing,) = measure(SimulatedRig([1.9]), 0.2, full=True).timings
    assert timing.notes == ("mostly launching: an empty kernel takes 1.2 us",)


def test_a_period_that_noise_covers_is_left_out() -> None:
    timer = SimulatedRig([0.001], noise=0.05)
    timer.EMPTY_US = 2.0
    (timing,) = measure(timer, 0.2, full=True).timings
    assert timing.replay_period_us is None
    assert any(note.startswith("no replay period") for note in timing.notes)


CAPPED = GpuState(1500.0, 84, ("power cap",))
STEADY = GpuState(1980.0, 60)


def block_conditions(*after_blocks: GpuState) -> list[GpuState]:
    """Three that settle the clock, and those after blocks."""
    return [STEADY, STEADY, STEADY, *after_blocks]


def test_a_block_with_clocks_held_down_is_taken_again() -> None:
    timer = SimulatedRig([12.0])
    timer.clocks = block_conditions(STEADY, CAPPED, CAPPED, STEADY)
    (timing,) = measure(timer, 0.05, full=False).timings
    assert timing.throttled is False
    assert timing.notes == ()
    assert sum(len(order) > 2 for order in timer.orders) >= 12 + 2


def test_a_block_that_stays_held_down_is_kept_and_labelled() -> None:
    timer = SimulatedRig([12.0])
    timer.clocks = block_conditions(STEADY, *[CAPPED] * (REPEATS + 1))
    (timing,) = measure(timer, 0.05, full=False).timings
    assert timing.throttled is True
    assert timing.notes == ("clocks were throttled in 1 of 12 blocks, after repeats (power cap)",)
    assert timing.temperature_c == 84


def test_a_gpu_that_is_always_held_down_costs_three_repeats_and_not_three_for_each_block() -> None:
    timer = SimulatedRig([12.0])
    timer.usual = CAPPED
    (timing,) = measure(timer, 0.05, full=False).timings
    blocks = [order for order in timer.orders if len(order) == len(timer.orders[-2])]
    assert len(blocks) <= 12 + REPEATS + 1
    assert timing.notes == ("clocks were throttled in 12 of 12 blocks, after repeats (power cap)",)


def test_a_clock_that_falls_without_a_reason_is_held_down_too() -> None:
    timer = SimulatedRig([12.0])
    timer.clocks = block_conditions(STEADY, *[GpuState(1800.0)] * (REPEATS + 1))
    (timing,) = measure(timer, 0.05, full=False).timings
    assert "clock down to 1800 MHz from 1980" in timing.notes[0]


def test_what_is_said_of_the_machine_and_of_other_processes_is_kept() -> None:
    timer = SimulatedRig([12.0])
    timer.machine = ("also on the GPU: python3 (pid 7)",)
    (timing,) = measure(timer, 0.05, full=False, alone=False).timings
    assert timing.notes[0] == "also on the GPU: python3 (pid 7)"
    assert "GPU's lock" in timing.notes[1]


def test_outputs_come_from_launches_like_the_timed_ones_after_poison() -> None:
    timer = SimulatedRig([12.0, 8.0])
    outputs = measure(timer, 0.05, full=False).outputs
    last = timer.orders[-1]
    assert set(last) == {1}
    assert outputs["y"].tolist() == [len(last)]


def test_a_launch_that_fails_ends_the_timing() -> None:
    class Failing(SimulatedRig):
        def durations(
            self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0
        ) -> tuple[float, ...]:
            raise TimedFault(Finding(FindingCode.ILLEGAL_ADDRESS, "error", "nothing is mapped there"))

    with pytest.raises(TimedFault, match="nothing is mapped"):
        measure(Failing([3.0]), 0.2, full=True)


def test_the_clock_is_waited_for_until_it_stays() -> None:
    clocks = [345.0, 900.0, 1600.0, 1975.0, 1980.0, 1980.0, 1200.0]
    settle(lambda: GpuState(clocks.pop(0)))
    assert clocks == [1200.0]
    asked = []

    def restless() -> GpuState:
        asked.append(1)
        return GpuState(1000.0 * (1 + len(asked) % 2))

    settle(restless)
    assert len(asked) == 200
    settle(lambda: GpuState(None))


def test_a_time_that_hangs_on_where_arrays_lie_is_labelled_with_how_far() -> None:
    timer = SimulatedRig([18.0])
    timer.placements, timer.places = 12, [[1.0], [1.9], [1.9]] * 4
    (timing,) = measure(timer, 0.2, full=True).timings
    assert timing.notes[0].startswith("depends on the placement of code and arrays: 18")
    assert "to 34" in timing.notes[0]
    assert timing.ci95_us[0] <= timing.median_us <= timing.ci95_us[1]


def test_one_placement_that_is_far_off_is_no_label() -> None:
    timer = SimulatedRig([18.0])
    timer.placements, timer.places = 12, [[1.9], *[[1.0]] * 11]
    (timing,) = measure(timer, 0.2, full=True).timings
    assert timing.notes == ()
    assert timing.median_us == pytest.approx(18.0, rel=0.01)


def test_launches_with_an_empty_l2_are_spread_over_all_placements() -> None:
    timer = SimulatedRig([18.0])
    timer.placements, timer.places = 12, [[1.0]] * 12
    measure(timer, 0.2, full=True)
    assert set(timer.placed[-13:-1]) == set(range(12))


def test_outputs_are_left_where_they_are_unless_they_are_asked_for() -> None:
    timer = SimulatedRig([20.0, 10.0])
    seen = measure(timer, 0.02, full=False, outputs=False)
    assert seen.outputs is None
    assert timer.poisoned_at is None
    assert seen.speedup is not None
    assert seen.speedup.median == pytest.approx(2.0, rel=0.05)
    assert [one.cold_l2_us for one in seen.timings] == [None, None]
