"""The complete judgement of one task: correctness, guards and time. Runs only in the worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kernelmate.backends.base import (
    Backend,
    EmulationTooLarge,
    Run,
    SupportsArrayComputing,
    UnsupportedInstruction,
)
from kernelmate.checks.canonical import canonical
from kernelmate.checks.case_launches import HUNG_FACTOR, Bench, bench_of
from kernelmate.checks.case_records import CaseRecord, Origin, RecordedFinding, never_read, printed
from kernelmate.checks.cases import CaseJudge
from kernelmate.checks.causes import assumed_divisibility, causes_of, divisibility_sentence, size_text
from kernelmate.checks.environment_launches import with_environment_findings
from kernelmate.checks.findings import lines_placed, message_placed, placed, ranked
from kernelmate.checks.guard_findings import code_findings, later_findings
from kernelmate.checks.guards import assumptions, far_indices, persistent_variables, unread_scalars
from kernelmate.checks.inputs import only_written
from kernelmate.checks.large_references import reference_bench
from kernelmate.checks.oracle import CASES_STAGE, Oracle, Progress
from kernelmate.checks.precision import Array
from kernelmate.checks.reference_facts import MEDIUM_ELEMENTS, elements_at
from kernelmate.checks.size_choice import chosen_sizes, smaller_size
from kernelmate.checks.size_plan import PlannedSize, check_memory
from kernelmate.checks.stages import StageJudge
from kernelmate.checks.timed import JudgedLaunch, LaunchTimes, Model, TimedLaunch, Timer, checked_library_time
from kernelmate.errors import ContractError, KernelmateError, LaunchTooLarge, ReferenceFailed
from kernelmate.records import (
    AS_BASELINE,
    NO_RACE_SEEN,
    Finding,
    FindingCode,
    Judgement,
    JudgeTask,
    Severity,
    Size,
    SizeMetrics,
)
from kernelmate.source import size_allowed
from kernelmate.source.conditions import Condition, own_conditions

STOPPERS = frozenset(
    {FindingCode.HANG, FindingCode.OUT_OF_MEMORY, FindingCode.OUTPUT_FLOOD, FindingCode.UNSUPPORTED_INSTRUCTION}
)
"""Findings after which no further size is tried, since each would take as long and give the same finding."""

RACES = frozenset({FindingCode.SHARED_RACE, FindingCode.GLOBAL_RACE})

TIMING_STAGE = "timing"
"""Stage in which versions are timed."""

KEPT_BYTES = 1 << 30
"""Bytes of arrays kept for timing; other arrays are made again."""

OWN_SIZES_WITHIN = 0.5
"""Fraction of the verdict's time limit after which no further generated size is launched."""


def judge(task: JudgeTask, backend: Backend, progress: Progress, timer: Timer, model: Model | None = None) -> Judgement:
    """Judges a version at every listed size and at generated sizes.

    Args:
        task: the version, its baseline, and the target.
        backend: the backend that runs it.
        progress: called with (stage, done, total); the stage is `reference` while the user's Python runs.
        timer: times launches, or None; called after all sizes have been judged.
        model: computes a launch's work and traffic, and its predicted time next to a measured one.

    Raises:
        ReferenceFailed: the user's reference or inputs function failed, so there is no judgement.
        ContractError: the contract has no value at a listed size.
        LaunchTooLarge: the kernel itself, or its reference, exceeds the emulator's limits at a listed size.
    """
    version = task.candidate
    try:
        bench = Bench(backend, task, version)
    except UnsupportedInstruction as refusal:
        return Judgement(None, (), (placed(refusal.finding, version.unit),), ())
    try:
        return _Judge(task, backend, bench, progress, timer, model).judgement()
    except ReferenceFailed as error:
        if error.file is None:
            error.file = version.unit.path
            error.line = error.line or (task.baseline or version).contract.line
        raise


def start_launches(task: JudgeTask, backend: Backend, progress: Progress) -> None:
    """Starts the launches needed to judge a task, if the backend can launch in advance.

    Errors are left to the judgement itself.
    """
    with suppress(UnsupportedInstruction, KernelmateError):
        bench = Bench(backend, task, task.candidate)
        _Judge(task, backend, bench, progress, lambda _: None, None).foresee()


class _Judge:
    """One judgement in progress."""

    def __init__(
        self, task: JudgeTask, backend: Backend, bench: Bench, progress: Progress, timer: Timer, model: Model | None
    ) -> None:
        self.task, self.bench, self.timer, self.progress, self.model = task, bench, timer, progress, model
        self.version = task.candidate
        baseline = bench_of(backend, task, task.baseline)
        device = backend if isinstance(backend, SupportsArrayComputing) else None
        self.oracle = Oracle(task, baseline, reference_bench(backend, task), progress, device)
        self.contract = self.oracle.contract
        self.compared = baseline is not None
        keep = KEPT_BYTES if backend.name == "cuda" else 0
        self.cases = CaseJudge(
            bench, self.oracle, compared=self.compared, keep_bytes=keep, glance=task.glance, written=task.written
        )
        self.backend, self.baseline = backend, baseline
        self.stages = StageJudge(task, progress) if self.version.contract.stages else None
        if self.stages is not None:
            bench.observe = self.stages.observe
        self.conditions = conditions_under(task)
        self.findings: list[Finding] = []
        self.records: list[CaseRecord] = []
        self.reasons: list[str] = []
        self.lost_at: tuple[Size, Origin] | None = None
        self.cut_short = False
        self.ended = False
        self.began = time.monotonic()

    def foresee(self) -> list[PlannedSize]:
        """Returns the sizes to judge, and announces their launches to the backend."""
        sizes, left_out = chosen_sizes(self.task, self.oracle, self.cases, self.conditions, compared=self.compared)
        self.reasons += left_out
        self.cases.foresee(sizes)
        return sizes

    def judgement(self) -> Judgement:
        sizes = self.foresee()
        for done, tried in enumerate(sizes):
            size, origin = tried.size, tried.origin
            if origin == "own" and self._short_of_time(size):
                break
            self.progress(CASES_STAGE, done, len(sizes))
            self._case(tried, done)
            if self.backend.poisoned:
                self.lost_at = (size, origin)
                break
            if any(n.code in STOPPERS for record in self.records for n in record.noted):
                self.cut_short |= any(one.origin == "contract" for one in sizes[done + 1 :])
                self.ended = True
            if self.cut_short or self.ended:
                break
        self.cases.foresee(())
        assumes = self._assumed(len(sizes))
        wrong_stages = [] if self.stages is None else self.stages.explained(self.records)
        self.findings += wrong_stages
        if not any(one.severity == "error" for one in wrong_stages):
            self._explain()
        if not (self.task.glance or self.backend.poisoned):
            self.findings = with_environment_findings(
                self.findings, self.task, self.bench, self.baseline, self.oracle, self.records
            )
            self.findings += self._far_findings()
        told = assumptions.find(
            self.version.contract, self.conditions, self.records, self.version.unit.text, compared=self.compared
        )
        lasting = frozenset[str]().union(*(s.outcome.result.lasting for r in self.records for s in r.seen))
        kept = persistent_variables.find(self.version, self.task.baseline, lasting)
        variable = self.compared and self.task.own_sizes and not (self.task.glance or self.backend.poisoned)
        scalars = self.cases.settling.unvaried(self.records) if variable else ()
        unread = unread_scalars.find(self.version, self.task.baseline, self.contract, scalars)
        self.findings += [placed(finding, self.version.unit) for finding in (*told, *kept, *unread)]
        self.findings += code_findings(self.version, self.task.baseline, self.contract)
        metrics = self._all_metrics()
        findings = ranked(self.findings)
        correct = self._correct(findings)
        self.progress(CASES_STAGE, len(sizes), len(sizes))
        return Judgement(
            correct,
            tuple(record.case(self.contract, one) for record, one in zip(self.records, metrics, strict=True)),
            findings,
            tuple(one for one in metrics if one is not None),
            never_read(self.contract, self.records),
            printed(self.records),
            tuple(self.reasons),
            assumes=assumes,
        )

    def _far_findings(self) -> list[Finding]:
        """Returns errors in arrays larger than any that is launched, if nothing else is wrong."""
        errors = any(finding.severity == "error" for finding in self.findings)
        if self.task.baseline is None or not self.task.own_sizes or errors or False in self._that_count():
            return []
        found = far_indices.find(self.version, self.task.baseline, self.contract, self.task.target)
        return [placed(finding, self.version.unit) for finding in found]

    def _assumed(self, number: int) -> tuple[str, ...]:
        """Returns divisibility conditions that a version without a baseline relies on, and adds them to `reasons`."""
        if self.compared or self.task.glance or self.cut_short or self.ended or not self.task.own_sizes:
            return ()
        if self.backend.poisoned or self.bench.over:
            return ()

        def attempt(size: Size) -> CaseRecord | None:
            before = len(self.records)
            if elements_at(self.contract, size) <= MEDIUM_ELEMENTS:
                self._case(PlannedSize(size, "own", once=True), number + before)
            return self.records[-1] if len(self.records) > before else None

        found = assumed_divisibility(self.records, attempt)
        if found:
            self.reasons.append(divisibility_sentence(found, self.records))
        return found

    def _short_of_time(self, size: Size) -> bool:
        """Returns True, and adds the reason, if generated sizes must be skipped to finish in time."""
        limit, spent = self.task.timeout_s, time.monotonic() - self.began
        if limit is None or spent < OWN_SIZES_WITHIN * limit:
            return False
        self.reasons.append(
            f"sizes from {size_text(size)} on were not tried: the verdict had taken {spent:.0f} s, over half of its limit (--timeout)"
        )
        return True

    def _case(self, tried: PlannedSize, number: int) -> None:
        size, origin = tried.size, tried.origin
        if not size_allowed(self.version.contract, size):
            if origin == "contract":
                self._refused(size, FindingCode.WRONG_AT_SIZE, "the candidate's `require` excludes this size, which the contract "
                              "lists: shrinking the problem")  # fmt: skip
            return
        try:
            self.bench.shape(size)
        except ContractError as error:
            if origin == "own" and 0 in size.values():
                return  # nothing to do, so no launch is an answer too
            self._refused(size, FindingCode.LAUNCH_FAILURE, f"it cannot be launched: {error.message}", origin)
            return
        try:
            check_memory(self.contract, size)
            record = self.cases.judge(tried, number)
        except ReferenceFailed as error:
            if origin == "contract":
                raise
            # A reference need not support sizes outside the contract.
            if min(size.values()) > 0:
                self.reasons.append(f"not tried at {size_text(size)}, where the reference fails: {error.message}")
            return
        except EmulationTooLarge as error:
            self._too_large(tried, number, error)
            return
        self.records.append(record)
        for noted in record.noted:
            self._keep(record, noted)

    def _refused(self, size: Size, code: FindingCode, message: str, origin: Origin = "contract") -> None:
        self.records.append(CaseRecord(size, origin, launched=False))
        self._add(code, "error", f"at {size_text(size)}: {message}")

    def _too_large(self, tried: PlannedSize, number: int, error: EmulationTooLarge) -> None:
        size, origin = tried.size, tried.origin
        baseline, mine = self.cases.baseline_longest, error.longest_thread
        if self.cases.baseline_ran and baseline is not None and mine is not None and mine > HUNG_FACTOR * baseline:
            more = f"its longest thread had taken {mine} of them, the baseline's takes {baseline} in all"
            self._refused(size, FindingCode.HANG, f"{error} By then {more}", origin)
            self.ended = True
            return
        if tried.selected:
            less = smaller_size(self.contract, size, [record.size for record in self.records])
            if less is None:
                self.reasons.append(f"not tried at {size_text(size)}: {error}")
            else:
                self._case(tried._replace(size=less), number)
            return
        if origin == "own":
            self.ended = mine is not None  # it reached the limit, and would do so again
            more = ", nor at the sizes of our own after it" * self.ended
            self.reasons.append(f"not tried at {size_text(size)}{more}: {error}")
            return
        hint = f"Judge smaller sizes (--size), {error.advice}, or use a GPU."
        if not self.cases.baseline_ran:
            raise LaunchTooLarge(f"At {size_text(size)} {error}", hint=hint) from None
        self.cut_short = True
        self._add(
            FindingCode.TIME_LIMIT, "error", f"at {size_text(size)}: {error} The baseline stays within it. {hint}"
        )

    def _keep(self, record: CaseRecord, noted: RecordedFinding) -> None:
        where = f"at {size_text(record.size)}: {message_placed(noted.message, self.version.unit)}"
        if record.origin == "own" and not self.compared and noted.severity == "warning" and not noted.guessed:
            where += "; if such sizes are not meant, say so with `require` in the contract"
        if noted.finding is None:
            self._add(noted.code, noted.severity, where, noted.buffer)
        else:
            finding = placed(noted.finding, self.version.unit)
            self.findings.append(replace(finding, severity=noted.severity, message=where))

    def _add(self, code: FindingCode, severity: Severity, message: str, buffer: str | None = None) -> None:
        self.findings.append(Finding(code, severity, message, file=self.version.unit.path, buffer=buffer))

    def _explain(self) -> None:
        """Adds the findings that explain wrong answers."""
        for weight, cause in causes_of(self.contract, self.records):
            self._add(cause.code, weight, cause.message, cause.buffer)

    def _correct(self, findings: tuple[Finding, ...]) -> bool | None:
        """Returns the correctness over all cases that count against the version, and adds to `reasons`."""
        counted = self._that_count()
        theirs = [r.size for r in self.records if r.baseline_correct is False]
        if theirs:
            self.reasons.append(f"the baseline itself is wrong at {'; '.join(size_text(size) for size in theirs)}")
        if False in counted or any(f.severity == "error" and f.code != FindingCode.TIME_LIMIT for f in findings):
            return False
        if self.cut_short or self._left_unjudged() or not self.oracle.known:
            return None
        if True not in self._that_count(telling=True):
            self.reasons.append(
                "every case is degenerate: a zero output, an unchanged one, or the one for other inputs would pass too"
            )
            return None
        self._say_unraced(findings)
        self._say_lacking()
        if not self.oracle.independent:
            self.reasons.append(f"{AS_BASELINE}; the contract names no reference")
        return True

    def _say_lacking(self) -> None:
        """Adds a reason for each size without a reference result, at which the baseline was compared with instead."""
        agrees = AS_BASELINE if self.compared else "not compared with anything"
        for size, why in self.oracle.lacking.items():
            self.reasons.append(f"{agrees} at {size_text(dict(size))}: {why}")

    def _that_count(self, *, telling: bool = False) -> list[bool | None]:
        """Returns the correctness of each case whose errors count against the version.

        `telling` excludes cases with a single ordinary launch.
        """
        held = [r for r in self.records if not r.launched or any(s.weight == "error" for s in r.seen)]
        return [r.correct for r in held if not (telling and r.once)]

    def _left_unjudged(self) -> bool:
        """Returns True, and adds the reason, if listed sizes remain unjudged because the device was lost.

        The loss is not the version's fault.
        """
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
        """Adds a reason that states the extent of the race search, since a search without findings is not proof."""
        if any(f.code in RACES for f in findings):
            return
        looked = [(r, s) for r in self.records for s in r.seen if not s.outcome.stopped and s.outcome.result.checked]
        schedules, sizes = len({s.outcome.shot.schedule for _, s in looked}), len({id(r) for r, _ in looked})
        self.reasons.append(
            f"{NO_RACE_SEEN} {schedules} schedule{'s' * (schedules != 1)} and {sizes} size{'s' * (sizes != 1)}"
        )
        unwatched = {part: r.size for r, s in reversed(looked) for part in s.outcome.result.unwatched}
        self.reasons.extend(f"at {size_text(size)}: {part}" for part, size in reversed(unwatched.items()))

    def _all_metrics(self) -> list[SizeMetrics | None]:
        """Returns counts and times of each record; None for records that were not counted."""
        counted = [r for r in self.records if r.counted is not None and r.seen and not r.seen[0].outcome.stopped]
        if self.task.glance:
            headline = (self.task.sizes or self.contract.sizes)[0]
            counted = [r for r in counted if r.size == headline]
        found: dict[int, SizeMetrics] = {}
        for done, record in enumerate(counted):
            self.progress(TIMING_STAGE, done, len(counted))
            found[id(record)] = self._metrics(record, headline=done == 0, sizes=len(counted))
        return [found.get(id(record)) for record in self.records]

    def _metrics(self, record: CaseRecord, *, headline: bool, sizes: int) -> SizeMetrics:
        assert record.counted is not None
        counted = record.counted = record.counted.with_counters()
        shape = self.bench.shape(record.size)
        lines = None if counted.counters is None else lines_placed(counted.lines, self.version.unit)
        launch = self._timed_launch(record, headline=headline, sizes=sizes)
        timed = self.timer(launch) or LaunchTimes(None)
        against = tuple(checked_library_time(one, self.contract, record.size, record.kept) for one in timed.against)
        self._hold_to_judged(record, timed)
        work, predicted = (None, None) if self.model is None else self.model(self.version, shape, counted)
        return SizeMetrics(
            dict(record.size),
            shape,
            counted.counters,
            timed.timing,
            lines,
            timed.beside,
            timed.speedup,
            work,
            predicted,
            () if self.stages is None else self.stages.verdicts(record.size, counted.stages, timed.stages),
            against,
        )

    def _timed_launch(self, record: CaseRecord, *, headline: bool, sizes: int) -> TimedLaunch:
        """Returns a record's first launch for the timer, with the baseline's launch unless the baseline is wrong."""
        assert record.counted is not None
        size, beside, baseline_run = record.size, None, None
        if self.baseline is not None and record.baseline_correct is not False:
            beside = self.baseline.module, self.baseline.shape(size)
            if self.baseline.version.contract.stages:
                baseline_run = partial(self._run, self.baseline, record)
        wrong = any(f.severity == "error" for f in self.findings) or False in self._that_count()
        restored = frozenset(
            a.name for a in self.contract.args if a.direction in ("inout", "scratch") and not only_written(a)
        )
        return TimedLaunch(
            self.version, self.bench.shape(size), record.counted, not wrong and not self.backend.poisoned, headline,
            sizes, self.bench.module, partial(self._run, self.bench, record), beside, restored, baseline_run, size,
        )  # fmt: skip

    def _run(self, bench: Bench, record: CaseRecord) -> Run:
        """Returns the run of a version on the inputs of a record's first launch."""
        kept = record.kept = record.kept or self.cases.again(record)
        return bench.launch(record.size, kept.outcome.shot, kept.outcome.given)

    def _hold_to_judged(self, record: CaseRecord, timed: LaunchTimes) -> None:
        """Checks that timed launches gave the judged outputs; afterwards the arrays are released."""
        kept, record.kept = record.kept, None
        where = f"at {size_text(record.size)}"
        if timed.finding is not None:
            finding = placed(timed.finding, self.version.unit)
            self.findings.append(replace(finding, message=f"{where}, when it was timed: {finding.message}"))
            return
        if kept is not None:
            timed = self._comparable(record.size, kept, timed)
        for code, message, buffer in later_findings(self.contract, kept, timed):
            self._add(code, "error", f"{where}: {message}", buffer)

    def _comparable(self, size: Size, kept: JudgedLaunch, timed: LaunchTimes) -> LaunchTimes:
        """Returns timed launches with outputs in the canonical form of judged outputs."""

        def changed(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return canonical(self.contract, size, arrays, kept.outcome.given)

        outputs = None if timed.outputs is None else changed(timed.outputs)
        repeats = timed.repeats
        if repeats is not None:
            repeats = replace(repeats, arrays=changed(repeats.arrays))
        return replace(timed, outputs=outputs, repeats=repeats)


def conditions_under(task: JudgeTask) -> tuple[Condition, ...]:
    """Returns the conditions of the candidate's text that its baseline lacks."""
    baseline = "" if task.baseline is None else task.baseline.unit.text
    return tuple(own_conditions(task.candidate.unit.text, baseline, task.candidate.contract.options))
