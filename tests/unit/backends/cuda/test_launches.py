"""Which form of a launch reaches the GPU."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.backend import aligned
from kernelmate.records import LaunchShape

SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))


def test_aligning_a_launch_moves_its_pointers_and_nothing_else() -> None:
    scalar = ScalarArgument("n", np.int32(3))
    array = ArrayArgument("x", np.arange(3.0), misalign=1, written=False)
    moved = aligned(Run(SHAPE, (array, scalar), schedule_seed=9, count=True))
    assert moved.arguments == (ArrayArgument("x", array.data, 0, False), scalar)
    assert (moved.shape, moved.schedule_seed, moved.count) == (SHAPE, 9, True)


def test_an_aligned_launch_is_left_as_it_is() -> None:
    run = Run(SHAPE, (ArrayArgument("x", np.arange(3.0)), ScalarArgument("n", np.int32(3))))
    assert aligned(run) is run
