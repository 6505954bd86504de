"""Detects an output that is read before it is written, so that the result depends on previous contents of memory."""

from __future__ import annotations

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.inputs import only_written
from kernelmate.records import Contract


def find(contract: Contract, outcome: LaunchOutcome) -> tuple[str, str] | None:
    """Returns the `out` argument whose old contents the launch loaded, and a sentence; None if there is none."""
    for argument in contract.args:
        if only_written(argument) and argument.name in outcome.result.reads:
            name = argument.name
            instead = "`inout`" if argument.direction == "out" else "`~ zeros`, with which every launch starts"
            return (
                name,
                f"{name} is read before it is written; if its old contents matter, the contract must say {instead}",
            )
    return None
