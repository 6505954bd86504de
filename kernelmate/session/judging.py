"""The context in which all versions of one kernel are compiled, judged in the worker, and decided on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.decide.acceptance import decide
from kernelmate.decide.constraints import broken_by
from kernelmate.errors import LaunchTooLarge, ReferenceFailed
from kernelmate.measure.roofline import place
from kernelmate.measure.statistics import ANY, EDITED, RatioError
from kernelmate.records import (
    BackendName,
    Computation,
    Contract,
    Finding,
    FindingCode,
    Judgement,
    JudgeTask,
    Kernel,
    MetricName,
    Objective,
    Roofline,
    Roofs,
    SizeMetrics,
    Target,
    Timing,
    Verdict,
    Version,
)
from kernelmate.session.build_variants import twins_of
from kernelmate.session.preparing import KernelPreparer, PreparedVersion
from kernelmate.session.references import reference_version
from kernelmate.session.verdicts import (
    TOO_MUCH_MEMORY,
    compiled_verdict,
    limit_exceeded,
    printed,
    ratio_of_times,
    temporaries_words,
    with_death,
    with_doubt,
    with_judgement,
    with_weights,
)
from kernelmate.source.instances import at_instance, concrete_instances
from kernelmate.worker.client import REFERENCE_STAGE, JudgeWorker, OnProgress, TaskDeath
from kernelmate.worker.nvidia.tool import TIMEOUT_S

HANGS = frozenset({FindingCode.HANG, FindingCode.TIME_LIMIT})
"""Findings of a version that has used up a whole time limit."""

AGAINST_S = 190.0
"""Seconds for timing one computation of a library; its process is killed a little earlier."""

COMPILED: frozenset[MetricName] = frozenset({"registers", "shared_bytes", "local_bytes", "occupancy"})
"""Metrics that are known after compilation."""

QUICK_TIMING_S = 0.02
"""Time budget in seconds for timing the headline size in a quick evaluation (cuda)."""


@dataclass(frozen=True, slots=True)
class JudgedInstance:
    """One instance of one version with its verdict, and its counts and times at every listed size that ran."""

    prepared: PreparedVersion
    verdict: Verdict
    metrics: tuple[SizeMetrics, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """State shared by all versions of one kernel that are compared with each other.

    Attributes:
        kernel: the baseline.
        contract: its contract, with the requested sizes and reference.
        seed: seed of all inputs, so that all versions get the same ones.
        roofs: the target's peak rates, measured on such a GPU if possible, else from the table.
        executed: count executed SASS instructions of listed launches; a search does not.
        quick_timeout_s: time limit of a quick evaluation; None for the verdict's.
        ends_s: seconds after which the worker is ended even if a limit of the version is longer; None for no such limit.
        variants: False leaves out builds with other options, which take most of a heavy kernel's verdict on a GPU.
        against: computations of libraries that versions are timed beside.
        written: True for a kernel that was written from its reference and that has no baseline.
    """

    kernel: Kernel
    contract: Contract
    backend: BackendName
    preparer: KernelPreparer
    worker: JudgeWorker
    seed: int
    timeout_s: float
    reference_timeout_s: float
    step_limit: int
    instruction_limit: int
    timing_budget_s: float
    sanitize: bool
    profile: bool
    on_progress: OnProgress | None
    roofs: Roofs
    executed: bool = False
    quick_timeout_s: float | None = None
    ends_s: float | None = None
    variants: bool = True
    against: tuple[Computation, ...] = ()
    written: bool = False

    @property
    def target(self) -> Target:
        """The GPU for which figures are computed."""
        return self.preparer.target

    def baselines(
        self, *, wrong: bool = False, begin: Callable[[PreparedVersion], None] | None = None
    ) -> tuple[JudgedInstance, ...]:
        """Returns the baseline's trials, one per instance.

        Args:
            wrong: True if the baseline is expected to be wrong; a launch beyond the emulator's limits is then a
                finding.
            begin: called with the first compiled instance before it is judged.

        Raises:
            CompileTimeout: the compiler did not end.
            ReferenceFailed: the reference cannot be used.
            EnvironmentFailed: the compiler or the worker is unavailable; LaunchTooLarge among them.
        """
        self.worker.start()
        instances = instances_of(self.contract)
        prepared = []
        for done, instance in enumerate(instances):
            self._tell("compile", done, len(instances))
            prepared.append(self.preparer.prepare(self.kernel, self.contract, instance))
        if begin is not None and not prepared[0].findings:
            begin(prepared[0])
        return tuple(self._try(one, None, None, alone=wrong) for one in prepared)

    def candidates(
        self,
        kernel: Kernel,
        contract: Contract,
        baselines: Sequence[JudgedInstance],
        objective: Objective | None,
        *,
        edited: bool = False,
        prepared: Sequence[PreparedVersion] = (),
        until_hang: bool = False,
    ) -> tuple[JudgedInstance, ...]:
        """Returns a candidate's trials against the baseline's, one per instance.

        Args:
            kernel: the candidate.
            contract: its contract.
            baselines: the baseline's trials.
            objective: the objective.
            edited: True if a built-in rewrite derived it from the baseline, which makes predicted ratios more precise.
            prepared: the compiled candidate, one per instance; empty to compile it here.
            until_hang: stop after an instance that hangs.

        Raises:
            ReferenceFailed: the reference cannot be used.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        self.worker.start()
        compiled = list(prepared)
        for done, baseline in enumerate(() if prepared else baselines):
            self._tell("compile", done, len(baselines))
            instance = baseline.prepared.compiled.instance
            compiled.append(self.preparer.prepare_candidate(kernel, contract, instance))
        tried = []
        for one, trial in zip(compiled, baselines, strict=True):
            # A wrong baseline sets no standard: candidates are compared neither with its outputs nor with its time.
            mends = objective is not None and objective.metric == "correct"
            tried.append(self._try(one, trial, objective, alone=mends, edited=edited))
            if until_hang and any(finding.code in HANGS for finding in tried[-1].verdict.findings):
                break
        return tuple(tried)

    def quick_evaluation(
        self, prepared: PreparedVersion, baseline: JudgedInstance, objective: Objective
    ) -> JudgedInstance:
        """A quick evaluation of a candidate: one launch of its first instance, at the headline size.

        On a GPU the headline size is timed for a short while beside the baseline, and the smallest other listed size is
        launched too.

        If compilation already decides the objective, and it is not met, the candidate does not run. A candidate found
        wrong here is wrong; any other still needs a full verdict.

        Raises:
            ReferenceFailed: the reference cannot be used.
            EnvironmentFailed: the worker is unavailable.
        """
        self.worker.start()
        if objective.metric in COMPILED and not prepared.findings:
            verdict = compiled_verdict(prepared, self.target, self.backend, self.seed)
            decision = decide(objective, baseline.verdict, verdict, contract=self.contract)
            held = broken_by(objective, verdict, prepared.compiled, prepared.contract, baseline.prepared.contract)
            if held or (decision.objective is not None and not decision.objective.met):
                verdict = replace(
                    verdict,
                    objective=decision.objective,
                    accepted=False,
                    reasons=held + decision.reasons,
                    trade_offs=decision.trade_offs,
                )
            return JudgedInstance(prepared, verdict)
        return self._try(prepared, replace(baseline, metrics=baseline.metrics[:1]), objective, edited=True, quick=True)

    def begin_quick_evaluation(self, prepared: PreparedVersion, baseline: JudgedInstance, objective: Objective) -> None:
        """Starts the launch of a quick evaluation that will probably follow, while the worker does its current task."""
        if self.backend == "emulator" and objective.metric not in COMPILED and not prepared.findings:
            self.worker.ahead(self._glance(prepared, baseline, objective))

    def begin_judgement(self, prepared: PreparedVersion, baseline: JudgedInstance) -> None:
        """Starts the emulated launches of a full verdict that will probably follow, during the current one; from any thread.

        It does nothing without a GPU, where the launches themselves would wait for those of the current verdict.
        """
        if self.backend == "cuda" and not prepared.findings:
            self.worker.announce(self._task(prepared, baseline))

    def _try(
        self,
        prepared: PreparedVersion,
        baseline: JudgedInstance | None,
        objective: Objective | None,
        *,
        alone: bool = False,
        edited: bool = False,
        quick: bool = False,
    ) -> JudgedInstance:
        """Judges one version and decides on it.

        Args:
            prepared: the version.
            baseline: the baseline's trial; None for the kernel itself.
            objective: the objective.
            alone: True to judge the version without comparing its outputs and times with the baseline's, one of which
                is expected to be wrong; the decision still uses the baseline.
            edited: True if a built-in rewrite derived it from the baseline.
            quick: as for `quick_evaluation`.
        """
        own = at_instance(self.contract, prepared.compiled.instance)
        if own is not self.contract:
            context = replace(self, contract=own)
            return context._try(prepared, baseline, objective, alone=alone, edited=edited, quick=quick)
        verdict, metrics = self._run_version(prepared, baseline, objective, alone=alone, quick=quick)
        relaunched = baseline is not None and verdict.binary == baseline.verdict.binary
        error = EDITED if edited or relaunched else ANY
        if baseline is not None and not alone:
            together = next((one.speedup for one in metrics if one.size == self.contract.sizes[0]), None)
            verdict = replace(
                verdict, speedup=together or ratio_of_times(baseline.verdict.timing, verdict.timing, error)
            )
            verdict = with_doubt(verdict, baseline.verdict, prepared.kernel)
        return JudgedInstance(prepared, self._decided(verdict, metrics, prepared, baseline, objective, error), metrics)

    def _run_version(
        self,
        prepared: PreparedVersion,
        baseline: JudgedInstance | None,
        objective: Objective | None,
        *,
        alone: bool,
        quick: bool,
    ) -> tuple[Verdict, tuple[SizeMetrics, ...]]:
        """Returns a version's verdict without a decision, and its figures; arguments as for `_try`."""
        verdict = compiled_verdict(prepared, self.target, self.backend, self.seed)
        if prepared.findings:
            return verdict, ()
        if not prepared.compiled.ok:
            return replace(verdict, findings=(_not_compiled(prepared),)), ()
        try:
            outcome = self._run(
                self._glance(prepared, baseline, objective) if quick else self._whole(prepared, baseline, alone=alone)
            )
        except LaunchTooLarge as refused:
            if not alone:
                raise
            outcome = limit_exceeded(prepared.kernel, refused)
        if isinstance(outcome, TaskDeath):
            return with_death(verdict, prepared.kernel, outcome), ()
        verdict = with_judgement(verdict, outcome, self.contract)
        return replace(verdict, roofline=self._roofline(verdict.timing, outcome)), outcome.metrics

    def _decided(
        self, verdict: Verdict, metrics: tuple[SizeMetrics, ...], prepared: PreparedVersion, baseline: JudgedInstance | None,
        objective: Objective | None, error: RatioError,
    ) -> Verdict:  # fmt: skip
        """Returns the verdict with its decision against the baseline, by the objective and its constraints."""
        decision = decide(
            objective,
            None if baseline is None else baseline.verdict,
            verdict,
            () if baseline is None else baseline.metrics,
            metrics,
            contract=self.contract,
            error=error,
        )
        held: tuple[str, ...] = ()
        if baseline is not None and objective is not None:
            held = broken_by(objective, verdict, prepared.compiled, prepared.contract, baseline.prepared.contract)
        told = () if baseline is None else temporaries_words(baseline.verdict, verdict)
        decided = () if held and decision.accepted is not False else decision.reasons
        return replace(
            verdict,
            objective=decision.objective,
            accepted=False if held else decision.accepted,
            reasons=tuple(dict.fromkeys(held + verdict.reasons + decided + told + self._without_tools())),
            trade_offs=decision.trade_offs,
            speedup=decision.speedup or verdict.speedup,
            cases=with_weights(verdict.cases, self.contract, decision.times),
        )

    def look_ahead(self, trials: Sequence[JudgedInstance], seed: int) -> None:
        """Lets the idle worker prefetch expected outputs for the next version of this kernel.

        Args:
            trials: the trials of the version that was judged.
            seed: the seed of the next version's inputs.
        """
        judged = next((trial.prepared for trial in trials if not trial.prepared.findings), None)
        if judged is not None and self.contract.reference_kind in ("function", "expression"):
            self.worker.ahead(replace(self._task(judged, None), seed=seed))

    def trace(self, prepared: PreparedVersion) -> str:
        """Returns the graph of the contract's reference as text.

        For a contract without results, a description of the return values.

        Raises:
            ReferenceFailed: it cannot be traced; the message names the line and the operation.
        """
        self._tell(REFERENCE_STAGE, 0, 1)
        answer = self.worker.trace(self._task(prepared, None), self.reference_timeout_s)
        if isinstance(answer, TaskDeath):
            raise ReferenceFailed(f"Tracing the reference ended the worker. {answer.detail}", line=self.contract.line)
        return answer

    def _task(self, prepared: PreparedVersion, baseline: JudgedInstance | None) -> JudgeTask:
        assert prepared.contract is not None
        instance = prepared.compiled.instance
        return JudgeTask(
            backend=self.backend,
            target=self.target,
            candidate=prepared.version,
            baseline=_runnable(baseline, self.backend),
            reference_version=reference_version(self.kernel, self.contract, instance, self.preparer),
            sizes=(),
            seed=self.seed,
            directory=str(directory_of(self.kernel)),
            reference_timeout_s=self.reference_timeout_s,
            step_limit=self.step_limit,
            instruction_limit=self.instruction_limit,
            timing_budget_s=self.timing_budget_s,
            timeout_s=self.timeout_s,
            sanitize=self.sanitize,
            profile=self.profile,
            # With a GPU, a disassembler would take longer than everything else.
            executed=self.executed and (self.backend == "emulator" or self.profile),
            against=self.against,
            written=self.written and baseline is None,
        )

    def _whole(self, prepared: PreparedVersion, baseline: JudgedInstance | None, *, alone: bool) -> JudgeTask:
        """Returns the task of a full verdict."""
        task = self._task(prepared, None if alone else baseline)
        if not self.variants:
            return task
        return replace(
            task, twins=twins_of(prepared, None if baseline is None else baseline.prepared.kernel, self.preparer)
        )

    def _glance(
        self, prepared: PreparedVersion, baseline: JudgedInstance | None, objective: Objective | None
    ) -> JudgeTask:
        """Returns the task of a quick evaluation; with a GPU, counters are only emulated if the objective needs them."""
        task, sizes = self._task(prepared, baseline), self.contract.sizes[:1]
        task = replace(task, own_sizes=False, sanitize=False, profile=False, glance=True, against=())
        if self.backend == "emulator":
            return replace(task, sizes=sizes)
        named = () if objective is None else (objective.metric, *objective.limits)
        budget_s = min(QUICK_TIMING_S, self.timing_budget_s)
        others = sorted(self.contract.sizes[1:], key=lambda size: math.prod(max(value, 1) for value in size.values()))
        return replace(task, sizes=sizes + tuple(others[:1]), timing_budget_s=budget_s, count="global_bytes" in named)

    def _run(self, task: JudgeTask) -> Judgement | TaskDeath:
        try:
            quick_s = self.quick_timeout_s if task.glance else None
            limit_s = quick_s or self.timeout_s + self._tools_s()
            limit_s = limit_s if self.ends_s is None else min(limit_s, self.ends_s)
            outcome = self.worker.judge(task, self.on_progress, limit_s)
        except ReferenceFailed as error:
            if error.file is None:
                error.file, error.line = self.kernel.unit.path, self.contract.line
            raise
        if isinstance(outcome, TaskDeath) and outcome.stage == REFERENCE_STAGE and not outcome.judge_failed:
            # The reference's own mistakes must not count against a candidate.
            raise ReferenceFailed(
                f"The reference {self.contract.reference or self.contract.inputs or ''} ended the worker "
                f"({outcome.kind}). {outcome.detail}{printed(outcome)}",
                file=self.kernel.unit.path,
                line=self.contract.line,
                hint=TOO_MUCH_MEMORY
                if outcome.kind == FindingCode.OUT_OF_MEMORY
                else "Run it by itself with the contract's sizes.",
            )
        return outcome

    def _roofline(self, timing: Timing | None, judgement: Judgement) -> Roofline | None:
        """Returns the roofline of the headline size; None if nothing was counted."""
        headline = next((one for one in judgement.metrics if one.size == self.contract.sizes[0]), None)
        if headline is None or headline.work is None:
            return None
        return place(headline.work, self.roofs, timing, self.target.l2_bytes)

    def _tools_s(self) -> float:
        """Returns the additional seconds for NVIDIA's tools and for libraries, which have limits of their own."""
        if self.backend != "cuda":
            return 0.0
        return TIMEOUT_S * (self.sanitize + self.profile) + AGAINST_S * len(self.against)

    def _without_tools(self) -> tuple[str, ...]:
        """Returns notes on requested tools that need a GPU."""
        if self.backend == "cuda":
            return ()
        lines = ("--sanitize needs a GPU; the emulator's own checks were made",) if self.sanitize else ()
        return lines + (("--profile needs a GPU; the counters shown are the emulator's",) if self.profile else ())

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


def _not_compiled(prepared: PreparedVersion) -> Finding:
    """Returns the note for which a version has no code (inactive, not supported, a template that nothing uses) as a finding."""
    said = prepared.compiled.diagnostics[-1]
    return Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "error", said.message, said.file, said.line, said.column)


def instances_of(contract: Contract | None) -> tuple[str | None, ...]:
    """Returns the units that are compiled and judged separately: each template instance, or the kernel itself."""
    return concrete_instances(contract) if contract is not None and contract.instances else (None,)


def directory_of(kernel: Kernel) -> Path:
    """Returns the folder of a contract's relative paths: the file's, or the current one for text without a file.

    The file of a new kernel (`kernelmate write`) does not exist yet, but its folder does.
    """
    path = Path(kernel.unit.path)
    new = kernel.unit.language == "cuda" and path.parent.is_dir()
    return path.resolve().parent if new or path.is_file() else Path.cwd()


ENDS_WORKER = frozenset(
    {
        FindingCode.HANG,
        FindingCode.TIME_LIMIT,
        FindingCode.WORKER_CRASH,
        FindingCode.OUT_OF_MEMORY,
        FindingCode.OUTPUT_FLOOD,
    }
)
ENDS_CONTEXT = frozenset({FindingCode.ILLEGAL_ADDRESS, FindingCode.MISALIGNED_ACCESS, FindingCode.TRAP})
"""Findings after which, on a GPU, nothing else can run in the same process (cuda.h, errors 700 to 719)."""


def _runnable(baseline: JudgedInstance | None, backend: BackendName) -> Version | None:
    """Returns the baseline to compare with; None if it cannot run, or ended its worker or GPU context."""
    if baseline is None or baseline.prepared.findings:
        return None
    deadly = ENDS_WORKER | ENDS_CONTEXT if backend == "cuda" else ENDS_WORKER
    if any(finding.code in deadly for finding in baseline.verdict.findings):
        return None
    return baseline.prepared.version
