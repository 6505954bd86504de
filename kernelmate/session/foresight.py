"""What a search will look at next, compiled and begun while it looks at something else."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from kernelmate.records import Contract, Kernel, Objective
from kernelmate.session.judging import Court, Trial
from kernelmate.session.preparing import Prepared


class Foresight:
    """Glimpses that are expected. Nothing that is found out depends on them, only when.

    The compiler is a process of its own, and the worker emulates on several cores: so the next versions are compiled while
    one is looked at, and their launches made beside its own.

    Args:
        court: judges. baseline: what versions are held against. objective: what was asked for.
    """

    def __init__(self, court: Court, baseline: Trial, objective: Objective) -> None:
        self._court, self._baseline, self._objective = court, baseline, objective
        self._instance = baseline.prepared.compiled.instance
        self._compiling: dict[str, Future[Prepared]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def expect(self, key: str, kernel: Kernel, contract: Contract) -> None:
        """Begin to compile a version that will probably be looked at."""
        if key not in self._compiling:
            self._thread = self._thread or ThreadPoolExecutor(1, "kernelmate-foresight")
            prepare = self._court.workshop.prepare_candidate
            self._compiling[key] = self._thread.submit(prepare, kernel, contract, self._instance)

    def prepared(self, key: str, kernel: Kernel, contract: Contract) -> Prepared:
        """A version that is looked at now, compiled. What else is compiled by then is begun beside it.

        Raises:
            EnvironmentFailed: there is no compiler.
        """
        waiting = self._compiling.pop(key, None)
        if waiting is None:
            return self._court.workshop.prepare_candidate(kernel, contract, self._instance)
        found = waiting.result()
        for other in [key for key, one in self._compiling.items() if one.done()]:
            following = self._compiling[other]
            if following.exception() is None:
                self._court.begin_glimpse(following.result(), self._baseline, self._objective)
        return found

    def close(self) -> None:
        """Expect nothing any more; what is being compiled is waited for by nobody."""
        for waiting in self._compiling.values():
            waiting.cancel()
        self._compiling.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
