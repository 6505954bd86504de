"""Properties of a baseline stricter than the tolerance: signs of zero, bits of NaN, subnormals, rounding to nearest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernelmate.checks.answers import BaselineOutputs, ExpectedOutputs
from kernelmate.checks.guards import flushed, lost_bits, single_units
from kernelmate.checks.precision import Array, Arrays
from kernelmate.checks.styles import InputStyle
from kernelmate.records import Contract


def binding(
    contract: Contract, seen: BaselineOutputs, style: InputStyle, outputs: Arrays, answer: ExpectedOutputs, ptx: str
) -> BaselineOutputs:
    """Returns the launch with the properties that the baseline has on unusual inputs and that a candidate must keep.

    Args:
        contract: may allow flushing.
        seen: what is known of the launch.
        style: the style of its inputs.
        outputs: the outputs of the baseline.
        answer: the reference's, with its tolerance as derived.
        ptx: the baseline's PTX.
    """
    pairs = [(name, outputs[name], want) for name, want in answer.want.items()]
    bits = {name: lost_bits.kept(ptx, got, want) for name, got, want in pairs}
    small, exact = dict[str, Array | None](), dict[str, Array | None]()
    if style.name == "denormals":
        small = {name: flushed.kept(contract, got, want) for name, got, want in pairs}
    if style.name == "patterns" and answer.origin == "derived":
        exact = {name: single_units.exact(got, want, answer.allowed, name) for name, got, want in pairs}
    return replace(seen, bits=_had(bits), small=_had(small), exact=_had(exact))


def _had(found: Mapping[str, Array | None]) -> Arrays:
    return {name: array for name, array in found.items() if array is not None}
