"""Benchmarks and searches for the editor, in a job queue's thread; kernels run only in the session's worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernelmate.compiler.process import CompilerProcess
from kernelmate.errors import KernelmateError
from kernelmate.records import Judged, Kernel, MetricName, Optimization, Verdict
from kernelmate.session import Session
from kernelmate.session.authors import OutgoingText, SearchOptions, SpendingBudget, authors
from kernelmate.session.candidates import BegunSearch
from kernelmate.session.writing import WriteOutcome, write_kernel
from kernelmate.synthesis.draft import KernelRequest
from kernelmate_lsp.checking import settings_key
from kernelmate_lsp.configuration import Configuration
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob

OnStage = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EditorSearch:
    """Prompt and options of a search in the editor.

    Attributes:
        prompt: the user's request.
        objective: the name of the objective's metric, if given.
        author: the author's name, as on the command line.
        ask: asks for consent before text goes to another machine.
        on_text: called with a model's text as it arrives.
        budget_s: seconds after which no further candidate is tried; None for no limit.
    """

    prompt: str
    objective: MetricName | None = None
    author: str = "auto"
    max_candidates: int = 32
    ask: Callable[[OutgoingText], bool] = lambda outgoing: False
    on_text: Callable[[str], None] = lambda text: None
    budget_s: float | None = None


class EditorJudge:
    """Judges for the editor with one reused worker, which is killed when the user cancels."""

    def __init__(self) -> None:
        self._compiler = CompilerProcess()
        self._session: Session | None = None
        self._spending: SpendingBudget | None = None
        self._key = ""
        self._job: QueuedJob | None = None
        self._on_stage: OnStage | None = None

    def kill(self) -> None:
        """Kills the running judgement with its worker."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        self._compiler.abandon()

    def close(self) -> None:
        """Ends all processes."""
        self.kill()
        self._compiler.close()

    def bench(
        self, job: QueuedJob, kernel: Kernel, configuration: Configuration, on_stage: OnStage
    ) -> tuple[Verdict, ...]:
        """Returns the verdicts of a kernel, one per instance.

        Raises:
            JobUnwanted: the user cancelled.
            KernelmateError: contract, reference, settings or machine need a change.
        """
        return self._with(job, _folder(kernel), configuration, on_stage, lambda session: session.bench(kernel))

    def optimize(
        self,
        job: QueuedJob,
        kernel: Kernel,
        configuration: Configuration,
        wanted: EditorSearch,
        on_stage: OnStage,
        on_judged: Callable[[Judged], None],
        on_begun: Callable[[BegunSearch], None],
    ) -> Optimization:
        """Searches for a version that meets a prompt.

        Raises:
            JobUnwanted: the user cancelled.
            KernelmateError: prompt, contract, settings or machine need a change.
        """

        def search(session: Session) -> Optimization:
            from kernelmate.report.versions import trying_line  # loads rich

            options = SearchOptions(
                wanted.author,
                ask=wanted.ask,
                on_step=lambda step: on_stage(step, 0, 0),
                on_text=wanted.on_text,
                stop=job.unwanted.is_set,
                spending=self._spending_for(session.settings.claude_budget_usd),
            )
            return session.optimize(
                kernel,
                wanted.prompt,
                max_candidates=wanted.max_candidates,
                on_judged=on_judged,
                stop=job.unwanted.is_set,
                suggesters=authors(session.settings, kernel, options),
                objective=wanted.objective,
                budget_s=wanted.budget_s,
                on_begun=on_begun,
                on_trying=lambda state: on_stage(trying_line(state), 0, 0),
            )

        return self._with(job, _folder(kernel), configuration, on_stage, search)

    def compare(
        self, job: QueuedJob, before: Kernel, after: Kernel, configuration: Configuration, on_stage: OnStage
    ) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...]]:
        """Returns the verdicts of two versions of a kernel, the second judged against the first.

        Raises:
            JobUnwanted: the user cancelled.
            KernelmateError: contracts, settings or machine need a change.
        """
        folder = _folder(after)
        made = self._with(job, folder, configuration, on_stage, lambda session: session.compare(before, after))
        return made.baseline, made.candidate

    def write(
        self, job: QueuedJob, asked: KernelRequest, configuration: Configuration, on_stage: OnStage
    ) -> WriteOutcome:
        """Writes new kernels for a Python function; no file is written.

        Raises:
            JobUnwanted: the user cancelled.
            KernelmateError: function, settings or machine need a change.
        """

        def work(session: Session) -> WriteOutcome:
            return write_kernel(session, asked, on_trying=lambda schedule: on_stage(schedule, 0, 0))

        return self._with(job, asked.path.parent, configuration, on_stage, work)

    def _spending_for(self, limit_usd: float) -> SpendingBudget:
        """Returns the spending budget of all the editor's searches together.

        The amount already spent also counts against a new limit.
        """
        if self._spending is None:
            self._spending = SpendingBudget(limit_usd)
        self._spending.limit_usd = limit_usd
        return self._spending

    def _with(
        self,
        job: QueuedJob,
        folder: Path,
        configuration: Configuration,
        on_stage: OnStage,
        work: Callable[[Session], T],
    ) -> T:
        job.check()
        self._job, self._on_stage = job, on_stage
        try:
            return work(self._open(folder, configuration))
        except KernelmateError:
            job.check()  # an error caused by killing the worker is not reported
            raise
        finally:
            self._job = self._on_stage = None

    def _open(self, folder: Path, configuration: Configuration) -> Session:
        settings = configuration.settings(folder)
        key = settings_key(settings)
        if self._session is None or key != self._key:
            if self._session is not None:
                self._session.close()
            self._session, self._key = Session(settings, self._progress, compiler=self._compiler), key
        return self._session

    def _progress(self, stage: str, done: int, total: int) -> None:
        if self._job is not None and self._job.unwanted.is_set():
            raise JobUnwanted
        if self._on_stage is not None:
            self._on_stage(stage, done, total)


def _folder(kernel: Kernel) -> Path:
    """Returns the folder whose settings apply to a kernel."""
    return Path(kernel.unit.path).parent
