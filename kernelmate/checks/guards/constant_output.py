"""Detects an output that does not depend on the inputs."""

from __future__ import annotations

from collections.abc import Iterable

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import same_bits


def find(first: LaunchOutcome, other: LaunchOutcome, apart: Iterable[str]) -> tuple[str, str] | None:
    """Returns the output that is equal in both launches, and a sentence; None if there is none.

    Args:
        first: one launch.
        other: a launch with other inputs.
        apart: outputs whose expected values for the two inputs differ.
    """
    for name in apart:
        one, two = first.result.arrays[name], other.result.arrays[name]
        if one.size and same_bits(one, two):
            return name, f"{name} is the same for different inputs; the right answers differ"
    return None
