"""Detects a launch that modifies its inputs, which destroys the caller's data and changes a second call's inputs."""

from __future__ import annotations

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import same_bits
from kernelmate.records import Contract


def find(contract: Contract, outcome: LaunchOutcome) -> tuple[str, str] | None:
    """Returns the input that the launch modified, and a sentence; None if there is none."""
    for argument in contract.args:
        if argument.direction != "in" or argument.name not in outcome.result.arrays:
            continue
        if not same_bits(outcome.given[argument.name], outcome.result.arrays[argument.name]):
            return argument.name, f"{argument.name} is an input, and the kernel changes it"
    return None
