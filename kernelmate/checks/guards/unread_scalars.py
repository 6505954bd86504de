"""Detects a scalar argument that a kernel ignores although its baseline reads it, where launches cannot vary its value.

A value written into the code is right only for the contract's. Launches with other values show that, unless inputs depend
on the value, such as labels that equal an `ignore_index`, or the reference has it as a number; then only the code shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kernelmate.checks.positions import read_parameters
from kernelmate.records import Contract, Finding, FindingCode, Version


def find(version: Version, baseline: Version | None, contract: Contract, scalars: Collection[str]) -> Iterator[Finding]:
    """Yields an error for each scalar that the baseline reads and the version does not.

    Args:
        version: the version under judgement.
        baseline: its baseline, or None.
        contract: the contract in force.
        scalars: arguments that are not `fixed`, but kept the contract's value, at least at a size.
    """
    if baseline is None or not (version.compiled.ptx and baseline.compiled.ptx):
        return
    mine, theirs = (read_parameters(one.compiled.ptx, one.compiled.lowered_name) for one in (version, baseline))
    for place, argument in enumerate(contract.parameters):
        if argument is not None and argument.name in scalars and place in theirs and place not in mine:
            yield Finding(
                FindingCode.WRONG_VALUES,
                "error",
                f"never reads {argument.name}, which the baseline reads, so it can be right for the contract's value "
                "only; if only that one is meant, add `fixed` to it in the contract",
                file=version.unit.path,
            )
