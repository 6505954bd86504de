"""Findings from launches in other environments.

Such launches run on another SM, at another time, at other addresses, or over other leftover memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from kernelmate.backends.base import Run, RunResult
from kernelmate.checks import perturbation
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.canonical import canonical
from kernelmate.checks.case_launches import CHEAP_ELEMENTS, Bench, elements_of
from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.causes import size_text
from kernelmate.checks.compare import compare
from kernelmate.checks.findings import VALUE_CODES, placed
from kernelmate.checks.guards import launch_environment
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.precision import Arrays, on_host
from kernelmate.records import Contract, Finding, FindingCode, JudgeTask, Size
from kernelmate.source import argument_shapes

MOST_CASES, MOST_SMALLER = 2, 3
"""Number of cases that are launched again, and of smaller cases for unoptimised code that is too slow at the former."""

MOST_ELEMENTS = 1 << 20
"""Maximum number of elements over all arrays of a case that is launched again in the emulator."""


def with_environment_findings(
    findings: Sequence[Finding],
    task: JudgeTask,
    bench: Bench,
    baseline: Bench | None,
    oracle: Oracle,
    records: Sequence[CaseRecord],
) -> list[Finding]:
    """Returns the findings, with those on environment values if nothing else explains a wrong result.

    On a GPU a version that depends on its environment, or on a register that nothing has written, may give wrong values
    or different outputs in equal launches; the emulator names the cause, which replaces them.
    """
    errors = [f for f in findings if f.severity == "error"]
    wrong = any(record.correct is False for record in records)
    explained = {f.code for f in errors} - VALUE_CODES
    by_chance = bench.on_hardware or any(f.code is FindingCode.STATEFUL for f in errors)
    if explained or ((errors or wrong) and not by_chance):
        return list(findings)
    found = list(_environment_findings(task, bench, baseline, oracle, records))
    if any(f.severity == "error" for f in found):
        return [*(f for f in findings if f not in errors), *found]
    return [*findings, *found]


def _environment_findings(
    task: JudgeTask, bench: Bench, baseline: Bench | None, oracle: Oracle, records: Sequence[CaseRecord]
) -> Iterator[Finding]:
    """Yields findings for environment values that a version depends on and its baseline does not."""
    version, contract = bench.version, oracle.contract
    found = launch_environment.reaching_values(version, contract)
    if found is None and not task.twins:
        return
    suited = _suited(contract, oracle, records)
    unoptimised = [twin for twin in task.twins if twin.arch is None]
    for number, record in enumerate(suited):
        size, shot = record.size, record.seen[0].outcome.shot
        if number >= MOST_CASES and not unoptimised:
            return
        given = oracle.inputs(size, shot)
        answer = oracle.answer(size, shot, given, oracle.theirs(size, shot, given))
        if answer is None:
            continue
        here = {name: on_host(array) for name, array in given.items()}
        judge, run = _OutputCheck(answer, contract, size, here), bench.launch(size, shot, here)
        said = None
        if number < MOST_CASES:
            said = None if found is None else launch_environment.find(version, found, run, task.target, judge)
            for twin in task.twins:
                if twin.arch is not None:
                    said = said or launch_environment.find_in_twin(version, twin, run, task.target, judge)
        # Unoptimised code executes up to forty times the instructions, and uninitialised reads do not depend on the
        # size.
        for twin in list(unoptimised):
            with suppress(launch_environment.TooLong):
                said = said or launch_environment.find_in_twin(version, twin, run, task.target, judge)
                unoptimised.remove(twin)
        if said is not None:
            if baseline is None or not _as_well(task, baseline, contract, baseline.launch(size, shot, here), judge):
                message = f"at {size_text(size)}: {said.message}"
                yield placed(Finding(said.code, "error", message, line=said.line), version.unit)
            return


def _as_well(task: JudgeTask, baseline: Bench, contract: Contract, run: Run, judge: _OutputCheck) -> bool:
    """Returns True if the baseline depends on its environment too."""
    found = launch_environment.reaching_values(baseline.version, contract)
    return found is not None and launch_environment.find(baseline.version, found, run, task.target, judge) is not None


def _suited(contract: Contract, oracle: Oracle, records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Returns the largest cases that are cheap to emulate, right and listed ones first, else one other case.

    Some smaller cheap cases follow. On a GPU a version that depends on its environment may already be wrong, and the
    emulator's own first launch has to be right.
    """
    sized = [
        (
            record.seen[0].right,
            record.origin == "contract",
            elements_of(argument_shapes(contract, record.size).values()),
            -number,
        )
        for number, record in enumerate(records)
        if record.seen and record.seen[0].plain and record.seen[0].right is not None and not oracle.large(record.size)
    ]
    cheap = sorted((one for one in sized if one[2] <= CHEAP_ELEMENTS), reverse=True)
    others = sorted((one for one in sized if one[2] <= MOST_ELEMENTS), key=lambda one: (not one[0], one[2]))
    rest = [one for one in cheap[MOST_CASES:] if one[2]]
    smaller = [rest[len(rest) * part // MOST_SMALLER] for part in range(1, MOST_SMALLER)] + rest[-1:] if rest else []
    return [records[-number] for *_, number in [*cheap[:MOST_CASES], *smaller] or others[:1]]


class _OutputCheck:
    """Function object that describes errors in the outputs of a launch."""

    def __init__(self, answer: ExpectedOutputs, contract: Contract, size: Size, given: Arrays) -> None:
        self._answer, self._contract, self._size, self._given = answer, contract, size, given

    def __call__(self, result: RunResult) -> str | None:
        answer = self._answer
        arrays = canonical(self._contract, self._size, result.arrays, self._given)
        for name, want in answer.want.items():
            pair = answer.ties.get(name)
            got, wanted, error = arrays[name], on_host(want), on_host(answer.allowed.error[name])
            near = perturbation.wanted_of_ties(
                got, wanted, None if pair is None else (on_host(pair[0]), on_host(pair[1]))
            )
            found = compare(name, got, near, error)
            if not found.right:
                first = found.first
                where = (
                    "" if first is None else f"[{', '.join(map(str, first.index))}] is {first.got}, not {first.want}"
                )
                return f"{name}{where}"
        return None
