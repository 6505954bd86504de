"""An input that is different after the launch: the caller's data is gone, and a second call gets other inputs."""

from __future__ import annotations

import hashlib

from kernelmate.checks.kinds import Array
from kernelmate.checks.trials import Outcome
from kernelmate.records import Contract


def find(contract: Contract, outcome: Outcome) -> tuple[str, str] | None:
    """The input that the launch changed, and a sentence."""
    for argument in contract.args:
        if argument.direction != "in" or argument.name not in outcome.result.arrays:
            continue
        if _hash(outcome.given[argument.name]) != _hash(outcome.result.arrays[argument.name]):
            return argument.name, f"{argument.name} is an input, and the kernel changes it"
    return None


def _hash(array: Array) -> bytes:
    return hashlib.blake2b(array.tobytes(), digest_size=16).digest()
