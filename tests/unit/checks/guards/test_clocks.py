from __future__ import annotations

import pytest

from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.guards.clocks import find


def repeats(gpu: float, host: float) -> RepeatedLaunch:
    return RepeatedLaunch(100, gpu, gpu, None, {}, (gpu, host))


def test_time_stamps_that_the_host_cannot_follow_are_told() -> None:
    said = find(repeats(1.2, 480.0))
    assert said is not None
    assert said.startswith("a launch takes 480 us by the host's clock and 1.2 us by the GPU's")
    assert find(repeats(-3.0, 480.0)) is not None


@pytest.mark.parametrize(("gpu", "host"), [(1.2, 3.4), (1.2, 90.0), (1000.0, 1040.0), (100.0, 450.0)])
def test_what_launching_adds_is_no_finding(gpu: float, host: float) -> None:
    assert find(repeats(gpu, host)) is None


def test_launches_that_were_not_repeated_tell_nothing() -> None:
    assert find(RepeatedLaunch(2, None, None, None, {})) is None
