"""Is a version right, and honestly so: the whole judgement of one task. Runs in the worker only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from kernelmate.backends.base import Backend, EmulationTooLarge, RunResult, UnsupportedInstruction
from kernelmate.checks.cases import CaseJudge, CaseRecord, Noted, Origin
from kernelmate.checks.causes import cause_of, size_text
from kernelmate.checks.findings import lines_placed, placed, ranked
from kernelmate.checks.oracle import CASES_STAGE, Oracle, Progress
from kernelmate.checks.sizes import own_sizes
from kernelmate.checks.trials import Bench
from kernelmate.errors import ContractError, LaunchTooLarge, ReferenceFailed
from kernelmate.records import (
    NO_RACE_SEEN,
    Case,
    Finding,
    Judgement,
    JudgeTask,
    LaunchShape,
    Severity,
    Size,
    SizeMetrics,
    Timing,
    Version,
)
from kernelmate.source import size_allowed

Timer = Callable[[Version, LaunchShape, RunResult], Timing | None]

STOPPERS = frozenset({"hang", "out-of-memory", "output-flood", "unsupported-instruction"})
"""Findings after which no further size is tried: each would take as long and say the same."""

RACES = frozenset({"shared-race", "global-race"})

TOO_LARGE_HINT = "Judge smaller sizes (--size), raise instruction_limit in the settings, or use a GPU."

MOST_PRINTED = 4096
"""Characters of what a kernel printed that are kept."""


def judge(task: JudgeTask, backend: Backend, progress: Progress, timer: Timer) -> Judgement:
    """Judge a version at every listed size and at sizes of our own.

    Args:
        task: the version, what it is compared with, and where.
        backend: where it runs.
        progress: told (stage, done, total); the stage is `reference` while the user's Python runs.
        timer: the time of one counted launch of a version, or None.

    Raises:
        ReferenceFailed: the user's reference or inputs function failed, so there is no judgement.
        ContractError: the contract has no value at a listed size.
        LaunchTooLarge: the kernel itself, or its reference, is beyond the emulator at a listed size.
    """
    version = task.candidate
    try:
        bench = Bench(backend, task, version)
    except UnsupportedInstruction as refusal:
        return Judgement(False, (), (placed(refusal.finding, version.unit),), ())
    try:
        return _Judge(task, backend, bench, progress, timer).judgement()
    except ReferenceFailed as error:
        if error.file is None:
            error.file = version.unit.path
            error.line = error.line or (task.baseline or version).contract.line
        raise


class _Judge:
    """One judgement under way."""

    def __init__(self, task: JudgeTask, backend: Backend, bench: Bench, progress: Progress, timer: Timer) -> None:
        self.task, self.bench, self.timer, self.progress = task, bench, timer, progress
        self.version = task.candidate
        baseline = _loaded(backend, task, task.baseline)
        self.oracle = Oracle(task, baseline, _reference(backend, task), progress)
        self.contract = self.oracle.contract
        self.compared = baseline is not None
        self.cases = CaseJudge(bench, self.oracle, compared=self.compared)
        self.backend = backend
        self.findings: list[Finding] = []
        self.records: list[CaseRecord] = []
        self.reasons: list[str] = []
        self.lost_at: tuple[Size, Origin] | None = None

    def judgement(self) -> Judgement:
        listed = self.task.sizes or self.contract.sizes
        own = own_sizes(self.contract, listed) if self.task.own_sizes else ()
        sizes: list[tuple[Size, Origin]] = [(s, "contract") for s in listed] + [(s, "own") for s in own]
        for done, (size, origin) in enumerate(sizes):
            self.progress(CASES_STAGE, done, len(sizes))
            self._case(size, origin, done)
            if self.backend.poisoned:
                self.lost_at = (size, origin)
                break
            if any(n.code in STOPPERS for record in self.records for n in record.noted):
                break
        self._explain()
        findings = ranked(self.findings)
        correct = self._correct(findings)
        self.progress(CASES_STAGE, len(sizes), len(sizes))
        metrics = [self._metrics(record) for record in self.records]
        return Judgement(
            correct,
            tuple(_shown(record, one) for record, one in zip(self.records, metrics, strict=True)),
            findings,
            tuple(one for one in metrics if one is not None),
            self._only_written(),
            self._printed(),
            tuple(self.reasons),
        )

    def _case(self, size: Size, origin: Origin, number: int) -> None:
        if not size_allowed(self.version.contract, size):
            if origin == "contract":
                self._refused(size, "wrong-at-size", "the candidate's `require` excludes this size, which the contract "
                              "lists: shrinking the problem")  # fmt: skip
            return
        try:
            self.bench.shape(size)
        except ContractError as error:
            if origin == "own" and 0 in size.values():
                return  # nothing to do, so no launch is an answer too
            self._refused(size, "launch-failure", f"it cannot be launched: {error.message}", origin)
            return
        try:
            record = self.cases.judge(size, origin, number)
        except ReferenceFailed as error:
            if origin == "contract":
                raise
            # A reference need not bear sizes that nobody asked for.
            if min(size.values()) > 0:
                self.reasons.append(f"not tried at {size_text(size)}, where the reference fails: {error.message}")
            return
        except EmulationTooLarge as error:
            self._too_large(size, origin, error)
            return
        self.records.append(record)
        for noted in record.noted:
            self._keep(record, noted)

    def _refused(self, size: Size, code: str, message: str, origin: Origin = "contract") -> None:
        self.records.append(CaseRecord(size, origin, launched=False))
        self._add(code, "error", f"at {size_text(size)}: {message}")

    def _too_large(self, size: Size, origin: Origin, error: EmulationTooLarge) -> None:
        if origin == "own":
            self.reasons.append(f"not tried at {size_text(size)}: {error}")
        elif self.cases.baseline_ran:
            self._refused(size, "hang", f"{error} The baseline stays within it")
        else:
            raise LaunchTooLarge(f"At {size_text(size)} {error}", hint=TOO_LARGE_HINT) from None

    def _keep(self, record: CaseRecord, noted: Noted) -> None:
        where = f"at {size_text(record.size)}: {noted.message}"
        if record.origin == "own" and not self.compared and noted.severity == "warning":
            where += "; if such sizes are not meant, say so with `require` in the contract"
        if noted.finding is None:
            self._add(noted.code, noted.severity, where, noted.buffer)
        else:
            finding = placed(noted.finding, self.version.unit)
            self.findings.append(replace(finding, severity=noted.severity, message=where))

    def _add(self, code: str, severity: Severity, message: str, buffer: str | None = None) -> None:
        self.findings.append(Finding(code, severity, message, file=self.version.unit.path, buffer=buffer))

    def _explain(self) -> None:
        """Say why the answers that are wrong are wrong."""
        weights: tuple[Severity, ...] = ("error", "warning", "note")
        for weight in weights:
            constant = self._constant(weight)
            if constant is not None:
                self._add("constant-output", weight, constant[1], constant[0])
                continue
            cause = cause_of(self.contract, self.records, weight)
            if cause is None:
                continue
            message = cause.message
            if weight == "warning" and cause.code == "wrong-at-size":
                message += (
                    "; these are sizes of our own: if they are not meant, say so with `require` in the contract, "
                )
                message += 'as in require = ["n % 256 == 0"]'
            self._add(cause.code, weight, message, cause.buffer)

    def _constant(self, weight: Severity) -> tuple[str, str] | None:
        """The output that is the same for different inputs wherever that shows, and nowhere right."""
        wrong = [
            r
            for r in self.records
            if not r.degenerate and any(s.plain and s.weight == weight and s.right is False for s in r.seen)
        ]
        if not wrong or any(r.constant is None for r in wrong) or any(r.correct for r in self.records):
            return None
        return wrong[0].constant

    def _correct(self, findings: tuple[Finding, ...]) -> bool | None:
        """The verdict over all cases that count; says in `reasons` what a reader of it must know."""
        counted = [r.correct for r in self.records if not r.launched or any(s.weight == "error" for s in r.seen)]
        theirs = [r.size for r in self.records if r.baseline_correct is False]
        if theirs:
            self.reasons.append(f"the baseline itself is wrong at {'; '.join(size_text(size) for size in theirs)}")
        if False in counted or any(f.severity == "error" for f in findings):
            return False
        if self._left_unjudged() or not self.oracle.known:
            return None
        if True not in counted:
            self.reasons.append(
                "every case is degenerate: a zero output, an unchanged one, or the one for other inputs would pass too"
            )
            return None
        self._say_unraced(findings)
        if not self.oracle.independent:
            self.reasons.append("agrees with the baseline; the contract names no reference")
        return True

    def _left_unjudged(self) -> bool:
        """Whether listed sizes were left when the device was lost, to what is no error of the version; says so."""
        if self.lost_at is None:
            return False
        size, origin = self.lost_at
        if origin == "own":
            self.reasons.append(
                f"sizes of our own after {size_text(size)}, where the GPU's context was lost, were not tried"
            )
            return False
        self.reasons.append(f"not all of the listed sizes were judged: the GPU's context was lost at {size_text(size)}")
        return True

    def _say_unraced(self, findings: tuple[Finding, ...]) -> None:
        """No race seen is no proof, so what was looked at is said."""
        if any(f.code in RACES for f in findings):
            return
        looked = [(r, s) for r in self.records for s in r.seen if not s.outcome.stopped and s.outcome.result.checked]
        schedules, sizes = len({s.outcome.shot.schedule for _, s in looked}), len({id(r) for r, _ in looked})
        self.reasons.append(
            f"{NO_RACE_SEEN} {schedules} schedule{'s' * (schedules != 1)} and {sizes} size{'s' * (sizes != 1)}"
        )

    def _metrics(self, record: CaseRecord) -> SizeMetrics | None:
        if record.counted is None or not record.seen or record.seen[0].outcome.stopped:
            return None
        shape = self.bench.shape(record.size)
        lines = None if record.counted.counters is None else lines_placed(record.counted.lines, self.version.unit)
        timing = self.timer(self.version, shape, record.counted)
        return SizeMetrics(dict(record.size), shape, record.counted.counters, timing, lines)

    def _only_written(self) -> tuple[str, ...]:
        results = [s.outcome.result for r in self.records for s in r.seen if not s.outcome.stopped]
        read = frozenset[str]().union(*(result.reads for result in results))
        return tuple(a.name for a in self.contract.args if a.direction == "inout" and results and a.name not in read)

    def _printed(self) -> str:
        printed = (s.outcome.result.printed for r in self.records for s in r.seen)
        return next((text for text in printed if text), "")[:MOST_PRINTED]


def _shown(record: CaseRecord, metrics: SizeMetrics | None) -> Case:
    worst = record.worst
    return Case(
        size=dict(record.size),
        origin=record.origin,
        correct=record.correct,
        baseline_correct=record.baseline_correct,
        degenerate=record.degenerate,
        max_error=worst.error if worst is not None and math.isfinite(worst.error) else None,
        first_wrong=record.first_wrong,
        median_us=metrics.timing.median_us if metrics is not None and metrics.timing is not None else None,
    )


def _reference(backend: Backend, task: JudgeTask) -> Bench | None:
    version = task.reference_version
    if version is None:
        return None
    try:
        return Bench(backend, task, version)
    except UnsupportedInstruction as refusal:
        finding = placed(refusal.finding, version.unit)
        raise ReferenceFailed(
            f"The reference kernel {version.contract.kernel} cannot run here: {finding.message}",
            file=finding.file,
            line=finding.line,
            column=finding.column,
            hint="Name another reference.",
        ) from None


def _loaded(backend: Backend, task: JudgeTask, version: Version | None) -> Bench | None:
    if version is None:
        return None
    try:
        return Bench(backend, task, version)
    except UnsupportedInstruction:
        return None
