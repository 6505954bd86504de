"""Launches that are wrong after many equal ones, as timing makes them: right while it is watched, and only then."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate.checks.compare import compare
from kernelmate.checks.kinds import Array
from kernelmate.checks.oracle import Answer
from kernelmate.records import Contract


def find(contract: Contract, outputs: Mapping[str, Array], answer: Answer | None) -> tuple[str, str] | None:
    """The output that is wrong after the timed launches, and a sentence.

    Args:
        contract: says what the outputs are.
        outputs: what a launch gave that came after the timed ones, over outputs that were spoilt just before, through
            the very same graph or stream.
        answer: to the inputs of those launches; None where nothing says what is right.
    """
    if answer is None:
        return None
    for argument in contract.args:
        name = argument.name
        if name not in answer.want or name not in outputs:
            continue
        difference = compare(name, outputs[name], answer.want[name], answer.allowed.error[name])
        if not difference.right:
            first = difference.first
            where = "" if first is None else f" at {list(first.index)}"
            if first is not None and first.got is not None and first.want is not None:
                where += f": {first.got:.7g} in place of {first.want:.7g}"
            return name, f"{name} is right in a first launch and wrong{where} after many equal ones"
    return None
