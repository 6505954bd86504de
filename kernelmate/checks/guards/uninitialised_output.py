"""Finds an output that is read before it is written, and is right only if the right values were already there."""

from __future__ import annotations

from kernelmate.checks.trials import LaunchOutcome
from kernelmate.records import Contract


def find(contract: Contract, outcome: LaunchOutcome) -> tuple[str, str] | None:
    """The `out` argument whose old contents the launch loaded, and a sentence."""
    for argument in contract.args:
        if argument.direction == "out" and argument.name in outcome.result.reads:
            name = argument.name
            return (
                name,
                f"{name} is read before it is written; if its old contents matter, the contract must say `inout`",
            )
    return None
