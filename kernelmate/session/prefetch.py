"""Prefetch of a search: compiles the next versions on all cores and starts their launches during other evaluations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

from kernelmate.errors import ReferenceFailed
from kernelmate.records import Candidate, Contract, Judged, Kernel, Objective
from kernelmate.session.candidates import content_key
from kernelmate.session.judging import JudgedInstance, JudgingContext
from kernelmate.session.preparing import PreparedVersion
from kernelmate.session.tracing import graph_text
from kernelmate.session.verdicts import compiled_verdict
from kernelmate.suggest.base import Suggester, SuggestRequest

BEGUN = 2
"""Maximum number of launches started ahead with each evaluated version."""

_Key: TypeAlias = "tuple[str, str | None]"
"""A version's content key, and the instance that is compiled."""


class Prefetcher:
    """Compiles expected versions in advance. It changes only the time at which results are available, never the results.

    Each compilation is a process of its own, and the worker emulates on several cores. So the next versions are
    compiled during an evaluation, as many at once as the compiler has child processes, and their launches run in
    parallel. Compiled code is kept, so that a full verdict after a quick evaluation does not compile again.

    Args:
        context: judges.
        baseline: the version that the others are compared with.
        objective: the objective.
    """

    def __init__(self, context: JudgingContext, baseline: JudgedInstance, objective: Objective) -> None:
        self._context, self._baseline, self._objective = context, baseline, objective
        self._instance = baseline.prepared.compiled.instance
        self._compiling: dict[_Key, Future[PreparedVersion]] = {}
        self._ready: dict[_Key, PreparedVersion] = {}
        self._begun: set[_Key] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._threads: set[int] = set()

    def expect(self, key: str, kernel: Kernel, contract: Contract, *instances: str | None, full: bool = False) -> None:
        """Starts compiling a version that will probably be evaluated: the given instances, else the first.

        Args:
            key: its content key.
            kernel: the version.
            contract: its contract.
            instances: the template instances.
            full: a full verdict will follow, whose emulated launches are started once the version is compiled.
        """
        for instance in instances or (self._instance,):
            self._expect((key, instance), kernel, contract, full=full)

    def _expect(self, named: _Key, kernel: Kernel, contract: Contract, *, full: bool) -> None:
        if named not in self._compiling and named not in self._ready:
            self._pool = self._pool or self._started()
            prepare = self._context.preparer.prepare_candidate
            compiling = self._compiling[named] = self._pool.submit(prepare, kernel, contract, named[1])
            if full:
                self._begun.add(named)  # not by a quick evaluation, which will not be made
                if named[1] == self._instance:
                    compiling.add_done_callback(self._begin_judgement)

    def _begin_judgement(self, compiled: Future[PreparedVersion]) -> None:
        if not compiled.cancelled() and compiled.exception() is None:
            self._context.begin_judgement(compiled.result(), self._baseline)

    def prepared(self, key: str, kernel: Kernel, contract: Contract, instance: str | None) -> PreparedVersion:
        """Returns the compiled version that is evaluated now, and starts launches of others compiled meanwhile.

        Raises:
            EnvironmentFailed: there is no compiler.
        """
        named = key, instance
        if named not in self._ready:
            waiting = self._compiling.pop(named, None)
            if waiting is None:
                prepare = self._context.preparer.prepare_candidate
                self._ready[named] = prepare(kernel, contract, instance)
            else:
                self._ready[named] = waiting.result()
                self._begin_others()
        return self._ready[named]

    def close(self) -> None:
        """Stops prefetching; running compilations are killed without waiting."""
        self._compiling.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._context.preparer.compiler.abandon(self._threads)

    def _begin_others(self) -> None:
        waiting = (item for item in self._compiling.items() if item[0][1] == self._instance)
        open_ = [(named, one) for named, one in waiting if one.done() and named not in self._begun]
        for named, one in open_[:BEGUN]:
            self._begun.add(named)
            if one.exception() is None:
                self._context.begin_quick_evaluation(one.result(), self._baseline, self._objective)

    def _started(self) -> ThreadPoolExecutor:
        def note() -> None:
            self._threads.add(threading.get_ident())

        return ThreadPoolExecutor(self._context.preparer.compiler.children, "kernelmate-prefetch", note)


class EarlyCandidates:
    """A suggester's first candidates, written and compiled in a thread while the baseline is judged.

    It changes only when results are available: the search asks the suggester again.

    Args:
        context: judges.
        objective: the objective.
        suggester: returns an instance of its own, whose notes nobody reads, and is called in the thread, since importing the
            schedules takes a second; None begins nothing.
    """

    def __init__(
        self, context: JudgingContext, objective: Objective, suggester: Callable[[], Suggester] | None
    ) -> None:
        self._context, self._objective, self._suggester = context, objective, suggester
        self._prefetcher: Prefetcher | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, baseline: PreparedVersion) -> None:
        """Traces the reference of the compiled baseline, and starts writing kernels."""
        if self._suggester is None:
            return
        context = self._context
        try:
            graph = graph_text(context, baseline)
        except ReferenceFailed:
            return  # said by the search
        verdict = compiled_verdict(baseline, context.target, context.backend, context.seed)
        self._prefetcher = Prefetcher(context, JudgedInstance(baseline, verdict), self._objective)
        request = SuggestRequest(
            kernel=context.kernel,
            contract=context.contract,
            compiled=baseline.compiled,
            verdict=verdict,
            objective=self._objective,
            target=context.target,
            judge=_not_yet,
            versions=tuple,
            stop=self._closed.is_set,
            expect=self._expect,
            trace=lambda: graph,
        )
        self._thread = threading.Thread(target=self._write, args=(self._suggester, request), daemon=True)
        self._thread.start()

    def prefetcher(self) -> Prefetcher | None:
        """Waits for the first candidate's text; returns the prefetcher that compiles it, None if nothing was begun."""
        if self._thread is not None:
            self._thread.join()
        return self._prefetcher

    def close(self) -> None:
        """Ends the work without waiting; may be called twice."""
        self._closed.set()
        if self._prefetcher is not None:
            self._prefetcher.close()

    def _write(self, suggester: Callable[[], Suggester], request: SuggestRequest) -> None:
        # Whatever fails here fails in the search again, which says so.
        with suppress(Exception):
            next(suggester().propose(request), None)

    def _expect(self, candidate: Candidate, *, full: bool = False) -> None:
        assert self._prefetcher is not None
        key = content_key(candidate.kernel, candidate.contract)
        self._prefetcher.expect(key, candidate.kernel, candidate.contract, full=full)


def first_writer(kernel: Kernel, suggesters: Sequence[Suggester] | None) -> Callable[[], Suggester] | None:
    """Returns a function that creates a copy of the first suggester that writes kernels from references; None without one.

    Without suggesters it is the built-in one, which is loaded when it is called.
    """
    like = next((one for one in suggesters or () if one.name == "synthesis"), None)
    if like is None and (suggesters is not None or kernel.unit.language == "triton"):
        return None

    def writer() -> Suggester:
        from kernelmate.suggest.synthesis import Synthesis

        return Synthesis(most=getattr(like, "most", None))

    return writer


def _not_yet(candidate: Candidate) -> Judged:
    raise RuntimeError(f"{candidate.author} cannot be judged before the baseline")
