"""Prefetch of a search: compiles the next versions on all cores and starts their launches during other evaluations."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from kernelmate.records import Contract, Kernel, Objective
from kernelmate.session.judging import JudgingContext, Trial
from kernelmate.session.preparing import Prepared

BEGUN = 2
"""Maximum of launches started ahead with each evaluated version."""

_Key: TypeAlias = "tuple[str, str | None]"
"""A version's content key, and the instance that is compiled."""


class Prefetcher:
    """Compiles expected versions ahead. It changes only when results are available, never the results.

    Each compilation is a process of its own, and the worker emulates on several cores. So the next versions are
    compiled during an evaluation, as many at once as the compiler has child processes, and their launches run in
    parallel. Compiled code is kept, so that a full verdict after a quick evaluation does not compile again.

    Args:
        context: judges.
        baseline: what versions are held against.
        objective: what was asked for.
    """

    def __init__(self, context: JudgingContext, baseline: Trial, objective: Objective) -> None:
        self._context, self._baseline, self._objective = context, baseline, objective
        self._instance = baseline.prepared.compiled.instance
        self._compiling: dict[_Key, Future[Prepared]] = {}
        self._ready: dict[_Key, Prepared] = {}
        self._begun: set[_Key] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._threads: set[int] = set()

    def expect(self, key: str, kernel: Kernel, contract: Contract, *instances: str | None) -> None:
        """Starts compiling a version that will probably be evaluated: the given instances, else the first."""
        for instance in instances or (self._instance,):
            self._expect((key, instance), kernel, contract)

    def _expect(self, named: _Key, kernel: Kernel, contract: Contract) -> None:
        if named not in self._compiling and named not in self._ready:
            self._pool = self._pool or self._started()
            prepare = self._context.preparer.prepare_candidate
            self._compiling[named] = self._pool.submit(prepare, kernel, contract, named[1])

    def prepared(self, key: str, kernel: Kernel, contract: Contract, instance: str | None) -> Prepared:
        """Return the compiled version that is evaluated now, and start launches of others compiled meanwhile.

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

        return ThreadPoolExecutor(self._context.preparer.compiler.children, "kernelmate-foresight", note)
