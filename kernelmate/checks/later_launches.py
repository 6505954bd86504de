"""Findings from timed and repeated launches, which follow the judged ones."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.checks.guards import clocks, repeated_launches, timed_output
from kernelmate.checks.timed import KeptLaunch, Timed
from kernelmate.records import Contract, FindingCode


def later_findings(
    contract: Contract, kept: KeptLaunch | None, timed: Timed
) -> Iterator[tuple[FindingCode, str, str | None]]:
    """Codes, sentences, and the outputs that they are about; each of them an error.

    Args:
        contract: the contract in force.
        kept: the judged launch with its arrays; None if they were not kept.
        timed: results of the launches that followed.
    """
    if timed.doubt is not None:
        yield FindingCode.SUB_PHYSICAL_TIME, timed.doubt, None
    repeats = timed.repeats
    if kept is not None:
        left = [timed.outputs, None if repeats is None else repeats.arrays]
        judged = kept.outcome.result.arrays
        others = (timed_output.find(contract, judged, kept.answer, one) for one in left if one is not None)
        other = next((one for one in others if one is not None), None)
        if other is not None:
            yield FindingCode.STATEFUL, other[1], other[0]
            return
    idle, late = repeated_launches.find(repeats, timed.timing), None if repeats is None else clocks.find(repeats)
    if idle is not None:
        yield FindingCode.STATEFUL, idle, None
    if late is not None:
        yield FindingCode.SUB_PHYSICAL_TIME, late, None
