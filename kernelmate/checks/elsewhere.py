"""Findings from launches in other surroundings: on another SM, at another time, elsewhere in memory, over other left-overs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.backends.base import RunResult
from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.causes import size_text
from kernelmate.checks.compare import compare
from kernelmate.checks.findings import placed
from kernelmate.checks.guards import surroundings
from kernelmate.checks.kinds import on_host
from kernelmate.checks.oracle import Answer, Oracle
from kernelmate.checks.trials import CHEAP_ELEMENTS, Bench, elements_of
from kernelmate.records import Contract, Finding, JudgeTask
from kernelmate.source import argument_shapes

MOST_ELEMENTS = 1 << 20
"""Elements over all arrays of a case that is launched again in the emulator."""


def surroundings_findings(
    task: JudgeTask, bench: Bench, baseline: Bench | None, oracle: Oracle, records: Sequence[CaseRecord]
) -> Iterator[Finding]:
    """What a version that is right so far depends on and its baseline does not."""
    if any(record.correct is False for record in records):
        return
    version, contract = bench.version, oracle.contract
    found = surroundings.reached(version, contract, task.target)
    record = _suited(contract, oracle, records) if found or task.twins else None
    if record is None:
        return
    size, shot = record.size, record.seen[0].outcome.shot
    given = oracle.inputs(size, shot)
    answer = oracle.answer(size, shot, given, oracle.theirs(size, shot, given))
    if answer is None:
        return
    here = {name: on_host(array) for name, array in given.items()}
    judge = _Judge(answer)
    run = bench.launch(size, shot, here)
    said = None if found is None else surroundings.find(version, found, run, task.target, judge)
    if said is None:
        for twin in task.twins:
            said = said or surroundings.find_in_twin(version, twin, run, task.target, judge)
    if said is None:
        return
    if baseline is not None and found is not None:
        theirs = surroundings.reached(baseline.version, contract, task.target)
        run = baseline.launch(size, shot, here)
        if theirs and surroundings.find(baseline.version, theirs, run, task.target, judge) is not None:
            return
    yield placed(Finding(said.code, "error", f"at {size_text(size)}: {said.message}", line=said.line), version.unit)


def _suited(contract: Contract, oracle: Oracle, records: Sequence[CaseRecord]) -> CaseRecord | None:
    """The largest case that is cheap to emulate, else the smallest of the others."""
    sized = [
        (elements_of(argument_shapes(contract, record.size).values()), number, record)
        for number, record in enumerate(records)
        if record.seen and record.seen[0].plain and record.correct and not oracle.large(record.size)
    ]
    cheap = [one for one in sized if one[0] <= CHEAP_ELEMENTS]
    others = [one for one in sized if one[0] <= MOST_ELEMENTS]
    return max(cheap)[2] if cheap else min(others)[2] if others else None


class _Judge:
    """Says what is wrong with the outputs of a launch."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, result: RunResult) -> str | None:
        allowed = self._answer.allowed
        for name, want in self._answer.want.items():
            wanted, error = on_host(want), on_host(allowed.error[name])
            found = compare(name, result.arrays[name], wanted, error)
            if not found.right:
                first = found.first
                where = (
                    "" if first is None else f"[{', '.join(map(str, first.index))}] is {first.got}, not {first.want}"
                )
                return f"{name}{where}"
        return None
