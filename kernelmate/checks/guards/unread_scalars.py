"""Detects a scalar argument that a kernel ignores although its baseline reads it, where no launch could vary its value.

A value written into the code is right only for the contract's. Launches with other values show that, unless inputs depend
on the value, such as labels that equal an `ignore_index`; then only the code shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.positions import read_parameters
from kernelmate.records import Contract, Finding, FindingCode, Version


def find(
    version: Version,
    baseline: Version | None,
    contract: Contract,
    scalars: Collection[str],
    records: Sequence[CaseRecord],
) -> Iterator[Finding]:
    """Yields an error for each scalar that only the baseline reads and that had the contract's value in all launches.

    Args:
        version: the version under judgement.
        baseline: its baseline, or None.
        contract: the contract in force.
        scalars: arguments that are not `fixed`, so may have other values.
        records: the launches that were made.
    """
    if baseline is None or not (version.compiled.ptx and baseline.compiled.ptx):
        return
    styles = [one.outcome.shot.style for record in records for one in record.seen]
    varied = {name for style in styles for name in (*style.vary, *dict(style.given))}
    mine, theirs = (read_parameters(one.compiled.ptx, one.compiled.lowered_name) for one in (version, baseline))
    for place, argument in enumerate(contract.parameters):
        if argument is None or argument.name not in scalars or argument.name in varied:
            continue
        if place in theirs and place not in mine:
            yield Finding(
                FindingCode.WRONG_VALUES,
                "error",
                f"never reads {argument.name}, which the baseline reads, so it can be right for the contract's value "
                "only; if only that one is meant, add `fixed` to it in the contract",
                file=version.unit.path,
            )
