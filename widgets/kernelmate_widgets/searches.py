"""A search in a background thread: the notebook stays responsive, and the search can be stopped immediately."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelmate.decide.objective import read_objective
from kernelmate.errors import KernelmateError
from kernelmate.records import Judged, Optimization
from kernelmate.report.versions import trying_line
from kernelmate.session.authors import OutgoingText, SearchOptions, authors
from kernelmate.session.candidates import BegunSearch
from kernelmate_widgets.handle import KernelHandle, KernelVersion
from kernelmate_widgets.notebook_state import NotebookState


def partial(prompt: str, metric: Any, version: KernelVersion, found: Sequence[Judged]) -> Optimization:
    """Returns the result of a stopped search: the candidates so far, best first.

    Args:
        prompt: the user's request.
        metric: the name of the objective's metric, if the user gave it.
        version: the version that the search started from.
        found: the judged candidates.

    Raises:
        UsageError: the prompt was not understood.
    """
    objective = read_objective(prompt, version.verdict, name=metric)
    return BegunSearch(objective, version.verdict, version.kernel, version.contract).stopped(found)


@dataclass(frozen=True, slots=True)
class SearchArguments:
    """Options of a search, as on the command line."""

    author: str = "auto"
    max_candidates: int = 32
    budget: float | None = None
    samples: int | None = None
    rounds: int = 1
    objective: Any = None
    quiet: bool = False


class Watcher(Protocol):
    """Listener of a search; called in the search's thread."""

    def on_stage(self, stage: str, done: int, total: int) -> None:
        """Receives the progress of judging."""
        ...

    def on_step(self, text: str) -> None:
        """Receives a step that begins."""
        ...

    def on_text(self, text: str) -> None:
        """Receives text of a model as it arrives."""
        ...

    def on_judged(self, found: Judged) -> None:
        """Receives a candidate once it is judged."""
        ...

    def ask(self, outgoing: OutgoingText) -> bool:
        """Returns True if a text may be sent to another machine; waits for the user."""
        ...

    def on_end(self, optimization: Optimization | None, error: str | None) -> None:
        """Called at the end with the result, or the reason for stopping."""
        ...


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Prompt and options of a search."""

    prompt: str
    options: SearchArguments


class BackgroundSearch:
    """One running search. It has its own session, which `cancel` closes without affecting others.

    Args:
        notebook: supplies the settings.
        name: the kernel's name.
        handle: the kernel.
        query: prompt and options.
        watcher: listener of all events.
        done: called after everything else, in the search's thread.
    """

    def __init__(
        self,
        notebook: NotebookState,
        name: str,
        handle: KernelHandle,
        query: SearchQuery,
        watcher: Watcher,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._notebook, self._name, self._handle, self._query, self._watcher = notebook, name, handle, query, watcher
        self._done = done
        self._version = handle.version
        self._found: list[Judged] = []
        self._stop = threading.Event()
        self._owner = f"panel of {name}"
        self._thread = threading.Thread(target=self._run, name=f"kernelmate search {name}", daemon=True)

    def start(self) -> None:
        """Starts the search."""
        self._thread.start()

    def cancel(self) -> None:
        """Stops the search immediately, even during a judgement; judged candidates keep their verdicts."""
        self._stop.set()
        self._notebook.close_session(self._owner)

    def join(self, timeout_s: float | None = None) -> None:
        """Waits for the search to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        optimization, error = None, None
        try:
            optimization = self._search()
        except KernelmateError as failure:
            error = None if self._stop.is_set() else str(failure)
        except Exception as failure:  # noqa: BLE001 -- nobody else sees what a thread raises
            error = None if self._stop.is_set() else f"{type(failure).__name__}: {failure}"
        if optimization is None and (self._stop.is_set() or self._found):
            optimization = self._partial()
        if optimization is not None and self._handle.version is self._version:
            self._handle.found(optimization)
        self._watcher.on_end(optimization, error)
        self._done()

    def _search(self) -> Optimization:
        options, version = self._query.options, self._version
        session = self._notebook.session(self._notebook.known[self._name].options, owner=self._owner)
        watcher = self._watcher
        asked = SearchOptions(
            options.author,
            options.samples,
            options.rounds,
            watcher.ask,
            watcher.on_step,
            watcher.on_text,
            self._stop.is_set,
            self._notebook.spending(session.settings),
        )
        with self._notebook.listening(watcher.on_stage):
            return session.optimize(
                version.kernel,
                self._query.prompt,
                (),
                options.max_candidates,
                self._judged,
                self._stop.is_set,
                budget_s=options.budget,
                suggesters=authors(session.settings, version.kernel, asked),
                objective=options.objective,
                contract=version.contract,
                on_begun=lambda begun: watcher.on_step(begun.objective.reading),
                on_trying=lambda state: watcher.on_step(trying_line(state, with_time=False)),
            )

    def _judged(self, found: Judged) -> None:
        if not self._stop.is_set():  # a judgement interrupted by stopping does not count
            self._found.append(found)
            self._watcher.on_judged(found)

    def _partial(self) -> Optimization:
        """Returns the result of the candidates so far."""
        return partial(self._query.prompt, self._query.options.objective, self._version, self._found)
