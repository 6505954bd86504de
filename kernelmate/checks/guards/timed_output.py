"""Detects launches whose outputs are wrong after many equal launches, as in timing, after a right judged launch."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.precision import Array, same_bits
from kernelmate.records import Contract


def find(
    contract: Contract, judged: Mapping[str, Array], answer: ExpectedOutputs | None, outputs: Mapping[str, Array]
) -> tuple[str, str] | None:
    """Returns the output that differs from the judged launch, and a sentence; None if there is none.

    Equal inputs give equal outputs, or, where the order in which threads add differs, outputs within the tolerance.

    Args:
        contract: defines the outputs.
        judged: outputs of the launch that was judged right.
        answer: the expected outputs; with None, nothing is compared.
        outputs: outputs of a launch after the timed ones, whose output buffers were overwritten before.
    """
    for argument in contract.args:
        name = argument.name
        if argument.direction not in ("out", "inout") or name not in outputs or name not in judged:
            continue
        if same_bits(outputs[name], judged[name]):
            continue
        if answer is None or name not in answer.want:
            continue
        difference = answer.difference(name, outputs[name])
        if not difference.right:
            first = difference.first
            at = "" if first is None else f" (element {list(first.index)}: {first.got}, not {first.want})"
            return name, f"timed launches leave another {name} than judged ones{at}: not each launch does the work"
    return None
