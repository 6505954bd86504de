"""Detects elements that a launch must write and does not, so that previous contents of memory could pass as results."""

from __future__ import annotations

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome, still_poisoned
from kernelmate.checks.precision import same_bits
from kernelmate.records import Contract


def find(contract: Contract, first: LaunchOutcome, second: LaunchOutcome) -> tuple[str, str] | None:
    """Returns an output not completely written, or an `inout` array left unchanged, and a sentence; None if there is none.

    `second` ran with outputs poisoned differently.
    """
    for argument in contract.args:
        name = argument.name
        if argument.direction == "out":
            unwritten = still_poisoned(first.result.arrays[name], first.shot.poison) & still_poisoned(
                second.result.arrays[name], second.shot.poison
            )
            if unwritten.any():
                index = [int(i) for i in np.unravel_index(int(np.argmax(unwritten)), unwritten.shape)]
                share = f"{int(unwritten.sum())} of {unwritten.size} elements are"
                return name, f"{share} never written to {name}, the first at {index}"
        elif argument.direction == "inout":
            given, after = first.given[name], first.result.arrays[name]
            if given.size and same_bits(given, after):
                return name, f"{name} is left as it was"
    return None
