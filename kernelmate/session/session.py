"""The session: settings, a target, a backend and a warm worker, and the operations on them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

from kernelmate.compiler.process import COMPILER, CompilerProcess
from kernelmate.config import Settings
from kernelmate.decide.objective import read_objective
from kernelmate.errors import BackendUnavailable, ContractError
from kernelmate.measure.calibration import roofs_of
from kernelmate.records import (
    BackendName,
    Candidate,
    CommandName,
    ConfirmationReport,
    Contract,
    Judged,
    JudgingInputs,
    Kernel,
    MetricName,
    Objective,
    Optimization,
    PortableJudgement,
    Target,
    Verdict,
)
from kernelmate.session.against import with_alternatives
from kernelmate.session.budget import TimeBudget
from kernelmate.session.candidates import BegunSearch
from kernelmate.session.confirming import OnConfirmed, candidate_kernel, confirm, judging_inputs, placed_kernel
from kernelmate.session.devices import choose_backend, choose_target, make_worker, target_of
from kernelmate.session.judging import JudgedInstance, JudgingContext, instances_of
from kernelmate.session.prefetch import EarlyCandidates, first_writer
from kernelmate.session.preparing import KernelPreparer, PreparedVersion, options_for
from kernelmate.session.recording import Recorder
from kernelmate.session.references import ignored_keys, with_objective, with_reference, with_sizes
from kernelmate.session.searching import OnJudged, OnTrying, Search
from kernelmate.session.verdicts import compiled_verdict
from kernelmate.source import contract_for, infer_contract, merge_contract, parse_contract
from kernelmate.suggest.base import Suggester
from kernelmate.worker.client import JudgeWorker, OnProgress, Worker

Sizes = Sequence[Mapping[str, int]]

QUICK_LEAST_S, QUICK_TIMES = 5.0, 2.0
"""Time limit of a quick evaluation on a GPU.

A minimum in seconds, and a multiple of the duration of the kernel's own verdict, the start of the worker included.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate beside its baseline: one verdict per instance each, in the contract's order."""

    baseline: tuple[Verdict, ...]
    candidate: tuple[Verdict, ...]


class Session:
    """The interface of all front ends: compiles, judges and searches with one set of settings.

    A context manager; outside of `with`, call `close`.

    Args:
        settings: as loaded by `kernelmate.config.load_settings`.
        on_progress: called in the calling thread with a stage, its finished steps and its total.
        worker: used instead of a new worker process.
        compiler: used instead of the process's own compiler child.

    Raises:
        BackendUnavailable: the backend of the settings cannot run here.
        UsageError: there is no such target.
    """

    def __init__(
        self,
        settings: Settings,
        on_progress: OnProgress | None = None,
        *,
        worker: JudgeWorker | None = None,
        compiler: CompilerProcess = COMPILER,
        nvcc: bool = False,
    ) -> None:
        self.settings = settings
        self._nvcc = nvcc
        self._on_progress = on_progress
        self._place = settings.place
        self._next_seed = secrets.randbits(31)
        self._backend = choose_backend(settings.backend, self._place)
        self._target = choose_target(settings.target, self._backend, self._place)
        self._worker = worker or make_worker(settings, self._backend)
        self._compiler = compiler
        self._recorder = Recorder(settings)

    @property
    def target(self) -> Target:
        """The GPU for which kernels are compiled, and occupancy and times are predicted.

        For a GPU of another machine that was not named, reading this connects to the machine.

        Raises:
            BackendUnavailable: there is no GPU there that can be used.
            WorkerUnavailable: there is no connection.
        """
        if self._target is None:
            machine = cast(Worker, self._worker).machine()
            if machine.problem is not None:
                what, hint = machine.problem
                raise BackendUnavailable(f"On {self._place.host}: {what}", hint=hint)
            assert machine.gpu is not None
            assert machine.capability is not None
            self._target = target_of(machine.gpu, machine.capability)
        return self._target

    @property
    def backend(self) -> BackendName:
        """The backend that kernels run on."""
        return self._backend

    def __enter__(self) -> Session:
        """Starts nothing yet: processes start on first use."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the session; an exception is passed on."""
        self.close()

    def close(self) -> None:
        """Ends the worker and everything it started."""
        self._worker.close()
        self._recorder.close()

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user beside the verdicts, such as a history that cannot be written."""
        return tuple(self._recorder.notices)

    def check(self, kernel: Kernel, *, keep_going: bool = False) -> tuple[Verdict, ...]:
        """Compiles only: diagnostics, resources and occupancy, one verdict per instance. Runs nothing of the file.

        With `keep_going`, an instance whose compilation did not end gets a verdict with that error.

        Raises:
            ContractError: the written contract is wrong.
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        seed, prepared = self._upcoming_seed(), self.prepare(kernel, keep_going=keep_going)
        return tuple(compiled_verdict(one, self.target, self._backend, seed) for one in prepared)

    def prepare(
        self, kernel: Kernel, instance: str | None = None, contract: Contract | None = None, *, keep_going: bool = False
    ) -> tuple[PreparedVersion, ...]:
        """Compiles only, and returns the code, one per instance. Runs nothing of the file.

        Args:
            kernel: the kernel.
            instance: the only instance to compile, instead of the contract's.
            contract: replaces the kernel's own.
            keep_going: True turns a compilation that did not end into an error of its instance.

        Raises:
            ContractError: the written contract is wrong.
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        if contract is None:
            contract = parse_contract(kernel) or _guess(kernel)
        preparer = self._preparer(kernel)
        if kernel.signature.template_parameters and instance is None and (contract is None or contract.inferred):
            return preparer.prepare_template(kernel, contract)
        instances = instances_of(contract) if instance is None else (instance,)
        prepared = []
        for done, one in enumerate(instances):
            self._tell("compile", done, len(instances))
            prepare = preparer.prepare_or_timeout if keep_going else preparer.prepare
            prepared.append(prepare(kernel, contract, one))
        return tuple(prepared)

    def bench(
        self,
        kernel: Kernel,
        sizes: Sizes = (),
        reference: str | None = None,
        *,
        contract: Contract | None = None,
        written: bool = False,
    ) -> tuple[Verdict, ...]:
        """Judges a kernel by its own contract: correctness, guards, time; returns one verdict per instance.

        Args:
            kernel: the kernel.
            sizes: replace the contract's sizes; the first is the headline.
            reference: replaces the contract's and the settings'.
            contract: replaces the kernel's own; a notebook creates one from live objects.
            written: True for a kernel that was written from the reference, which must give NaN where the reference does.

        Raises:
            InputError: contract, sizes or reference need a change.
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        context = self._beside(replace(self._context(kernel, sizes, reference, contract), executed=True))
        context = replace(context, written=written)
        trials = context.baselines()
        self._look_ahead(context, trials)
        verdicts = tuple(trial.verdict for trial in trials)
        self._recorder.own("bench", kernel, context.contract, verdicts)
        return verdicts

    def compare(
        self,
        kernel: Kernel,
        candidate: Kernel,
        prompt: str | None = None,
        sizes: Sizes = (),
        reference: str | None = None,
        *,
        contract: Contract | None = None,
        launch: Contract | None = None,
    ) -> Comparison:
        """Judges a candidate against a kernel, by the kernel's contract.

        If the candidate has a contract of its own, its grid, block, shared and require apply; the rest is the kernel's,
        and the reasons mention differences.

        Args:
            kernel: the baseline.
            candidate: the changed kernel.
            prompt: the objective; without it, a right kernel without errors is accepted.
            sizes: replace the contract's sizes; the first is the headline.
            reference: replaces the contract's and the settings'.
            contract: replaces the kernel's own.
            launch: a contract with the candidate's launch, if its text has none.

        Raises:
            InputError: a contract, sizes or the reference need a change.
            CompileTimeout: the baseline's compilation did not end.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        context = replace(self._context(kernel, sizes, reference, contract), executed=True)
        own = parse_contract(candidate, context.contract)
        in_force = merge_contract(context.contract, launch) if own is None else own
        beside = self._beside(context)
        baselines = context.baselines()
        objective = None if prompt is None else read_objective(prompt, baselines[0].verdict)
        trials = beside.candidates(candidate, in_force, baselines, objective)
        remarks = ignored_keys(candidate, context.contract) if own is not None else ()
        before = tuple(trial.verdict for trial in baselines)
        after = tuple(replace(trial.verdict, reasons=trial.verdict.reasons + remarks) for trial in trials)
        parent = self._recorder.own("compare", kernel, context.contract, before)
        self._recorder.own("compare", candidate, in_force, after, prompt=prompt, parent=parent)
        return Comparison(before, after)

    def optimize(
        self,
        kernel: Kernel,
        prompt: str,
        sizes: Sizes = (),
        max_candidates: int = 32,
        on_judged: OnJudged | None = None,
        stop: Callable[[], bool] | None = None,
        *,
        budget_s: float | None = None,
        suggesters: Sequence[Suggester] | None = None,
        reference: str | None = None,
        objective: MetricName | None = None,
        contract: Contract | None = None,
        on_trying: OnTrying | None = None,
        on_begun: Callable[[BegunSearch], None] | None = None,
    ) -> Optimization:
        """Search for a version that meets the prompt's objective; every proposed candidate is judged.

        Args:
            kernel: the baseline.
            prompt: the user's words; `Optimization.objective.reading` says how they were understood.
            sizes: replace the contract's sizes; the first is the headline.
            max_candidates: maximum of candidates to judge.
            on_judged: called with each candidate as soon as it is judged.
            stop: called between candidates; True ends the search with the results so far.
            budget_s: seconds for the whole call; work that is not expected to end in time is not started.
            suggesters: sources of candidates; None for synthesis and recipes, or repairs to make a kernel correct.
            reference: replaces the contract's and the settings'.
            objective: the metric's name; None reads it from the prompt.
            contract: replaces the kernel's own.
            on_trying: called before each version is tried, quickly or in full.
            on_begun: called once the kernel was judged and the prompt interpreted, before anything is tried.

        Raises:
            InputError: prompt, contract, sizes or reference need a change.
            CompileTimeout: the baseline's compilation did not end.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        began = time.monotonic()
        said = read_objective(prompt, name=objective)  # an invalid prompt is reported before anything is compiled
        context = self._context(kernel, sizes, reference, contract)
        context = replace(context, contract=with_objective(context.contract, said))
        beside = self._beside(context).against
        # Only with a GPU are the cores idle while the baseline is judged.
        begins = self._backend == "cuda" and said.metric == "time"
        early = EarlyCandidates(context, said, first_writer(kernel, suggesters) if begins else None)
        try:
            before = time.monotonic()
            baselines = context.baselines(wrong=said.metric == "correct", begin=early.begin)
            baseline_s = time.monotonic() - before
            if self._backend == "cuda":
                quick_s = QUICK_LEAST_S + QUICK_TIMES * baseline_s
                context = replace(context, quick_timeout_s=min(context.timeout_s, quick_s))
            aim = read_objective(prompt, baselines[0].verdict, name=objective)
            if on_begun is not None:
                on_begun(BegunSearch(aim, baselines[0].verdict, context.kernel, context.contract))
            judged, earlier = self._recorded(kernel, context, baselines, aim, on_judged)
            budget = TimeBudget(budget_s, baseline_s, began)
            prefetcher = early.prefetcher()
            suggesters = _recipes(kernel) if suggesters is None else suggesters
            search = Search(
                context, baselines, aim, max_candidates, budget, judged, stop or _never, earlier, on_trying, prefetcher,
                beside,
            )  # fmt: skip
            return search.run(suggesters)
        finally:
            early.close()

    def _recorded(
        self,
        kernel: Kernel,
        context: JudgingContext,
        baselines: Sequence[JudgedInstance],
        aim: Objective,
        on_judged: OnJudged | None,
    ) -> tuple[OnJudged, Callable[[], Sequence[Judged]]]:
        """Records a search's baseline.

        Returns a function that records each judged version and passes it on, and one that reads versions of earlier searches.
        """
        command: CommandName = "fix" if aim.metric == "correct" else "optimize"
        parent = self._recorder.own(command, kernel, context.contract, [trial.verdict for trial in baselines])

        def judged(found: Judged) -> None:
            self._recorder.candidate(found.candidate, found.verdict, aim, parent, command)
            if on_judged is not None:
                on_judged(found)

        # Only models use it, and one read per search is enough.
        return judged, cache(lambda: self._recorder.earlier(kernel, context.contract, baselines[0].verdict, aim))

    def trace(self, kernel: Kernel, contract: Contract) -> str:
        """Returns the graph of a contract's reference as text; for a contract without results, a description of the return values.

        Raises:
            ReferenceFailed: it cannot be loaded, or raises.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        context = self._context_for(kernel, contract, self._preparer(kernel))
        return context.trace(self.prepare(kernel, contract=contract)[0])

    def given(
        self, kernel: Kernel, sizes: Sizes = (), reference: str | None = None, contract: Contract | None = None
    ) -> JudgingInputs:
        """Returns all inputs of this session's judgement of a kernel, so that another machine can repeat it.

        Args:
            kernel: what is judged.
            sizes: as given to the judging method.
            reference: likewise.
            contract: replaces the kernel's own.

        Raises:
            InputError: contract, sizes or reference need a change.
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        context = self._context(kernel, sizes, reference, contract)
        headers = [header for one in self.prepare(kernel, contract=contract) for header in one.compiled.headers]
        return judging_inputs(kernel, context.contract, context.preparer.options, self.target.name, headers)

    def confirm(
        self, carried: PortableJudgement, *, everything: bool = False, on_judged: OnConfirmed | None = None
    ) -> ConfirmationReport:
        """Judges again, on this session's GPU, versions that were judged without one.

        Args:
            carried: as `read_carried` reads it from a document.
            everything: also judge versions that were already accepted or rejected; else only those that a GPU can
                decide.
            on_judged: called with each version as soon as it is judged.

        Raises:
            InputError: the carried kernel, its contract or reference cannot be used.
            CompileTimeout: its compilation
            did
                not end. EnvironmentFailed: the compiler or the worker is unavailable.
        """
        promises = [one for one in carried.promises if everything or one.open]
        with placed_kernel(carried.given) as kernel:
            options = carried.given.options
            settings = self.settings
            preparer = KernelPreparer(
                self.target, options, settings.compile_timeout_s, settings.cache_dir, self._compiler
            )
            contract = with_objective(carried.given.contract, carried.objective)
            context = replace(self._context_for(kernel, contract, preparer), seed=carried.seed)
            found = confirm(context, carried, promises, on_judged)
            if Path(kernel.unit.path).parent == Path(carried.given.directory):
                self._record_confirmed(kernel, context.contract, found)
        return found

    def _record_confirmed(self, kernel: Kernel, contract: Contract, found: ConfirmationReport) -> None:
        parent = self._recorder.own("confirm", kernel, contract, [found.baseline])
        for one in found.confirmations:
            version = candidate_kernel(kernel, one.promise)
            candidate = Candidate(one.promise.author, one.promise.why, version, one.promise.contract)
            self._recorder.candidate(candidate, one.verdict, found.objective, parent, "confirm")

    def _context(
        self, kernel: Kernel, sizes: Sizes, reference: str | None, contract: Contract | None = None
    ) -> JudgingContext:
        contract = with_sizes(contract or contract_for(kernel), tuple(sizes))
        contract = with_reference(contract, kernel, reference or self.settings.reference)
        return self._context_for(kernel, contract, self._preparer(kernel))

    def _beside(self, context: JudgingContext) -> JudgingContext:
        """Returns the context with the computations of libraries that the settings ask for; raises as `with_alternatives`."""
        return with_alternatives(context, self.settings.against, remote=self._place.host is not None)

    def _context_for(self, kernel: Kernel, contract: Contract, preparer: KernelPreparer) -> JudgingContext:
        return JudgingContext(
            kernel=kernel,
            contract=contract,
            backend=self._backend,
            preparer=preparer,
            worker=self._worker,
            seed=self._seed(),
            timeout_s=self.settings.timeout_s,
            reference_timeout_s=self.settings.reference_timeout_s,
            step_limit=self.settings.step_limit,
            instruction_limit=self.settings.instruction_limit,
            timing_budget_s=self.settings.timing_budget_s,
            sanitize=self.settings.sanitize,
            profile=self.settings.profile,
            on_progress=self._on_progress,
            roofs=roofs_of(self.target, self.settings.calibration_file),
        )

    def _preparer(self, kernel: Kernel) -> KernelPreparer:
        settings, options = self.settings, options_for(self.settings, Path(kernel.unit.path))
        return KernelPreparer(
            self.target, options, settings.compile_timeout_s, settings.cache_dir, self._compiler, self._nvcc
        )

    def _seed(self) -> int:
        """Returns the settings' seed, else an unpredictable one: the one that was prefetched for."""
        seed = self._upcoming_seed()
        self._next_seed = secrets.randbits(31)
        return seed

    def _upcoming_seed(self) -> int:
        return self._next_seed if self.settings.seed is None else self.settings.seed

    def _look_ahead(self, context: JudgingContext, trials: Sequence[JudgedInstance]) -> None:
        if self.settings.seed is None:
            context.look_ahead(trials, self._next_seed)

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(stage, done, total)


def _recipes(kernel: Kernel) -> Sequence[Suggester]:
    if kernel.unit.language == "triton":
        from kernelmate.suggest.triton import TritonRecipes

        return (TritonRecipes(),)
    # They load the tree-sitter grammar, which checking and judging do not need.
    from kernelmate.suggest.offline import Offline
    from kernelmate.suggest.synthesis import Synthesis

    return (Synthesis(),) if kernel.parts else (Synthesis(), Offline())  # rewrites change one kernel


def _guess(kernel: Kernel) -> Contract | None:
    """Returns an inferred contract if the signature allows one; compiling needs none."""
    try:
        return infer_contract(kernel)
    except ContractError:
        return None


def _never() -> bool:
    return False
