"""Compares the stages of a pipeline with their own references, and describes each for the verdict."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernelmate.backends.base import StageResult
from kernelmate.checks.case_launches import PlannedLaunch
from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.causes import size_text
from kernelmate.checks.compare import Difference
from kernelmate.checks.oracle import Oracle, Progress
from kernelmate.checks.pipelines import Observe
from kernelmate.checks.precision import Array, Arrays
from kernelmate.checks.sizes import key_of
from kernelmate.errors import ReferenceFailed
from kernelmate.records import (
    Finding,
    FindingCode,
    JudgeTask,
    LaunchShape,
    Severity,
    Size,
    Stage,
    StageVerdict,
    Timing,
    Version,
)

WITHOUT = "neither the stage nor its kernel's contract names a reference"
BY_LIBRARY = "computed by NumPy"
NOT_RUN = "it did not run"
TOO_LARGE = "its arrays are too large to be compared by themselves"


@dataclass(frozen=True, slots=True)
class StageComparison:
    """One stage at one size: the outputs that it gave for the inputs that it got.

    Attributes:
        differences: one for each array that it writes; empty if nothing was compared.
        unjudged: the reason why nothing was compared; None if something was.
    """

    differences: tuple[Difference, ...] = ()
    unjudged: str | None = None

    @property
    def correct(self) -> bool | None:
        """Returns True if every array is within tolerance; None if nothing was compared."""
        return None if self.unjudged is not None else all(one.right for one in self.differences)


@dataclass(slots=True)
class StageJudge:
    """Judges each stage of a pipeline by itself, on the arrays that it got in a run of the whole.

    So a stage is never blamed for its predecessors, and needs no inputs of its own.

    Attributes:
        task: the task; its candidate is the pipeline.
        tell: reports progress while references run.
    """

    task: JudgeTask
    tell: Progress
    _oracles: dict[int, Oracle | str] = field(default_factory=dict)
    _found: dict[tuple[tuple[str, int], ...], dict[int, StageComparison]] = field(default_factory=dict)

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages of the contract."""
        return self.task.candidate.contract.stages

    def observe(self, number: int, size: Size, shot: PlannedLaunch) -> Observe:
        """Returns a function that compares a stage of one run."""

        def compared(before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
            self._found.setdefault(key_of(size), {})[number] = self._compared(number, size, shot, before, after)

        return compared

    def _compared(
        self, number: int, size: Size, shot: PlannedLaunch, before: Mapping[str, Array], after: Mapping[str, Array]
    ) -> StageComparison:
        oracle = self._oracle(number)
        if isinstance(oracle, str):
            return StageComparison(unjudged=oracle)
        if not all(isinstance(array, np.ndarray) for array in before.values()) or oracle.large(size):
            return StageComparison(unjudged=f"{TOO_LARGE} at {size_text(size)}")
        contract = self.stages[number].contract
        outputs = [a.name for a in contract.args if a.direction in ("out", "inout")]
        given: Arrays = {a.name: before[a.name] for a in contract.args if a.direction in ("in", "inout")}
        given |= {name: np.zeros_like(before[name]) for name in outputs if name not in given}
        try:
            answer = oracle.answer(size, shot, given, None)
            assert answer is not None, "a stage with a reference has an answer"
            found = {name: answer.difference(name, after[name]) for name in outputs}
            if oracle.measured_again(size, shot, given, found, after):
                answer = oracle.answer(size, shot, given, None) or answer
                found = {name: answer.difference(name, after[name]) for name in outputs}
        except ReferenceFailed as error:
            return StageComparison(unjudged=error.message)
        return StageComparison(tuple(found.values()))

    def _oracle(self, number: int) -> Oracle | str:
        """Returns the source of a stage's expected outputs, or the reason why there is none."""
        if number not in self._oracles:
            self._oracles[number] = self._made(number)
        return self._oracles[number]

    def _made(self, number: int) -> Oracle | str:
        stage = self.stages[number]
        if stage.contract.reference_kind not in ("function", "expression"):
            return WITHOUT
        version = self.task.candidate
        alone = Version(version.compiled, stage.contract, version.unit)
        # Expected outputs are cached by seed, but the inputs of a stage are the results of earlier stages.
        seed = self.task.seed ^ zlib.crc32(f"{version.compiled.binary} {number}".encode())
        task = replace(self.task, candidate=alone, baseline=None, reference_version=None, seed=seed)
        try:
            return Oracle(task, None, None, self.tell)
        except ReferenceFailed as error:
            return error.message

    def explained(self, records: Sequence[CaseRecord]) -> list[Finding]:
        """Returns a finding for each stage that is wrong by its own reference: an error, unless the whole is right there."""
        found: dict[str | None, Finding] = {}
        for record in records:
            for finding in self._findings(record.size, right=record.correct):
                found.setdefault(finding.stage, finding)
        return list(found.values())

    def _findings(self, size: Size, *, right: bool | None) -> Iterator[Finding]:
        for number, one in sorted(self._found.get(key_of(size), {}).items()):
            wrong = [difference for difference in one.differences if not difference.right]
            if wrong:
                stage = self.stages[number]
                message = f"at {size_text(size)}: stage {stage.name}: {_sentence(wrong[0])}"
                if right:
                    message += "; the pipeline is right all the same"
                severity: Severity = "warning" if right else "error"
                yield Finding(
                    FindingCode.WRONG_VALUES, severity, message, buffer=wrong[0].argument, stage=stage.name,
                    file=self.task.candidate.unit.path,
                )  # fmt: skip

    def verdicts(
        self, size: Size, counted: Sequence[StageResult], timings: Sequence[Timing | None]
    ) -> tuple[StageVerdict, ...]:
        """Returns the worker's results for each stage at one size.

        Args:
            size: the size.
            counted: the stages that ran, in order.
            timings: their predicted times.
        """
        compared = self._found.get(key_of(size), {})
        found = []
        for number, stage in enumerate(self.stages):
            ran = counted[number] if number < len(counted) else None
            one = compared.get(number, StageComparison(unjudged=BY_LIBRARY if stage.library else NOT_RUN))
            found.append(_verdict(stage, one, ran, timings[number] if number < len(timings) else None))
        return tuple(found)


def _verdict(stage: Stage, one: StageComparison, ran: StageResult | None, timing: Timing | None) -> StageVerdict:
    shape: LaunchShape | None = None if ran is None else ran.shape
    result = None if ran is None else ran.result
    errors = [difference.error for difference in one.differences]
    return StageVerdict(
        name=stage.name,
        expression=stage.contract.reference if stage.library else None,
        grid=None if shape is None else shape.grid,
        block=None if shape is None else shape.block,
        correct=one.correct,
        unjudged=one.unjudged,
        max_error=max(errors, default=None),
        counters=None if result is None else result.counters,
        timing=timing,
        temporaries_written_bytes=None if ran is None else ran.written_bytes,
        temporaries_read_bytes=None if ran is None else ran.read_bytes,
    )


def _sentence(wrong: Difference) -> str:
    first = wrong.first
    if first is None:
        return f"{wrong.argument} is not what its own reference gives"
    where = ", ".join(str(place) for place in first.index)
    want, got = ("not finite" if value is None else f"{value:.6g}" for value in (first.want, first.got))
    return f"{wrong.argument}[{where}] is {got}, and for the inputs that it got its own reference gives {want}"
