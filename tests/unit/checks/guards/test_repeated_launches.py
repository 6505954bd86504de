from __future__ import annotations

import pytest

from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.guards.repeated_launches import find


def repeats(own: float | None, afresh: float | None, scrubbed: float | None = None) -> RepeatedLaunch:
    return RepeatedLaunch(100, own, afresh, scrubbed, {})


def test_a_launch_that_skips_its_work_over_its_own_results_is_found() -> None:
    said = find(repeats(1.5, 480.0))
    assert said is not None
    assert said.startswith("a launch takes 1.5 us right after an equal one, and 480 us where outputs and")


def test_a_launch_that_needs_what_was_left_in_shared_memory_is_found() -> None:
    said = find(repeats(5.0, 5.1, 90.0))
    assert said is not None
    assert "where shared memory was overwritten" in said
    assert find(repeats(5.0, 5.1, 12.0)) is None


@pytest.mark.parametrize(
    ("own", "afresh"),
    [(226.0, 226.3), (3.65, 3.56), (1.4, 1.2), (1.2, 3.9), (10.0, 18.0), (20.0, 1.0), (None, 5.0), (5.0, None)],
)
def test_what_caches_and_launch_gaps_make_is_no_finding(own: float | None, afresh: float | None) -> None:
    assert find(repeats(own, afresh)) is None
