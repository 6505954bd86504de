"""Forms of launches: ordinary, cooperative and in clusters, as they are passed to CuPy and the driver."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.cuda.backend import with_aligned_pointers
from kernelmate.backends.cuda.emulated_checks import CHECKED_LAUNCHES, REMEMBERED, EarlierLaunches, EmulatedChecks
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, LaunchShape

SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))


def test_aligning_a_launch_moves_its_pointers_and_nothing_else() -> None:
    scalar = ScalarArgument("n", np.int32(3))
    array = ArrayArgument("x", np.arange(3.0), misalign=1, written=False)
    moved = with_aligned_pointers(Run(SHAPE, (array, scalar), schedule_seed=9, count=True))
    assert moved.arguments == (ArrayArgument("x", array.data, 0, False), scalar)
    assert (moved.shape, moved.schedule_seed, moved.count) == (SHAPE, 9, True)


def test_an_aligned_launch_is_left_as_it_is() -> None:
    run = Run(SHAPE, (ArrayArgument("x", np.arange(3.0)), ScalarArgument("n", np.int32(3))))
    assert with_aligned_pointers(run) is run


class Recorded:
    """An emulated module that takes down what it is asked to run."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def run(self, run: Run) -> RunResult:
        self.runs.append(run)
        return RunResult({}, checked=run.check)


def emulated(*runs: Run) -> list[bool]:
    """For each launch in turn whether it goes through the emulator first."""
    recorded = Recorded()
    compiled = Compiled("k", None, "k", "sm_90", "NVRTC", True, ())
    companion = EmulatedChecks(recorded, compiled, find_target(None), None)
    return [companion.seen(run) is not None for run in runs]


def launch_of(n: int, seed: int = 0, misalign: int = 0, *, count: bool = False, wary: bool = False) -> Run:
    arguments = (ArrayArgument("x", np.full(64, seed), misalign), ScalarArgument("n", np.int32(n)))
    return Run(SHAPE, arguments, schedule_seed=seed, count=count, wary=wary)


def test_every_launch_whose_inputs_may_lead_astray_goes_through_the_emulator() -> None:
    runs = [launch_of(3, seed, wary=True) for seed in range(2 * CHECKED_LAUNCHES)]
    assert all(emulated(*runs))


def test_the_first_launches_of_each_size_go_through_the_emulator() -> None:
    each = 2 * CHECKED_LAUNCHES
    seen = emulated(*(launch_of(n, seed) for n in (3, 4) for seed in range(each)))
    assert seen == [True] * CHECKED_LAUNCHES + [False] * (each - CHECKED_LAUNCHES) + (
        [True] * CHECKED_LAUNCHES + [False] * (each - CHECKED_LAUNCHES)
    )


def test_launches_off_alignment_and_counted_ones_always_do() -> None:
    before = [launch_of(3, seed) for seed in range(CHECKED_LAUNCHES)]
    assert all(emulated(*before, launch_of(3, 9, misalign=1), launch_of(3, 9, count=True)))


def test_large_launches_go_through_it_for_their_counts_alone() -> None:
    large = Run(LaunchShape((10_000, 1, 1), (256, 1, 1)), (ArrayArgument("x", np.zeros(1 << 20)),))
    counted = Run(large.shape, large.arguments, count=True)
    recorded = Recorded()
    compiled = Compiled("k", None, "k", "sm_90", "NVRTC", True, ())
    companion = EmulatedChecks(recorded, compiled, find_target(None), None)
    assert companion.seen(large) is None
    assert companion.seen(counted) is not None
    assert [run.check for run in recorded.runs] == [False]


def test_what_native_code_was_worth_is_known_of_the_same_launch_of_the_next_version_alone() -> None:
    worth = EarlierLaunches()
    worth.learn("k", launch_of(3), True)
    worth.learn("k", launch_of(4), False)
    worth.learn("k", launch_of(3), None)
    asked = [("k", launch_of(3, seed=5)), ("k", launch_of(4)), ("k", launch_of(5)), ("other", launch_of(3))]
    assert [worth.known(*one) for one in asked] == [True, False, None, None]
    assert worth.known("k", launch_of(3, count=True)) is None
    worth.learn("k", launch_of(3), False)
    assert worth.known("k", launch_of(3)) is False


def test_of_very_many_launches_the_last_are_remembered() -> None:
    worth = EarlierLaunches()
    for n in range(REMEMBERED + 1):
        worth.learn("k", launch_of(n), True)
    assert [worth.known("k", launch_of(n)) for n in (0, 1, REMEMBERED)] == [None, True, True]
