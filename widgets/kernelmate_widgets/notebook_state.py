"""State of a notebook: settings, sessions with reused workers, and the kernels that its cells defined."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.compiler import find_target
from kernelmate.config import Settings, load_settings
from kernelmate.errors import SourceError, UsageError
from kernelmate.records import Compiled, Contract, Kernel, Optimization, Verdict
from kernelmate.session import Session
from kernelmate.session.authors import SpendingBudget
from kernelmate_widgets.error_display import FOLDER_PREFIX
from kernelmate_widgets.handle import KernelHandle, KernelVersion, Prepare
from kernelmate_widgets.launching import Launcher, make_launcher

OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A bound kernel, as it was judged.

    Attributes:
        contract: the contract for live objects; None if its own or an inferred contract applied.
        options: settings given in its cell's magic line.
        line: the arguments of `%%kernelmate`.
        cell: the whole cell as it was run.
        cell_id: the front end's identifier of the cell; None if it does not send one.
    """

    kernel: Kernel
    contract: Contract | None
    verdict: Verdict
    options: Mapping[str, Any]
    line: str = ""
    cell: str = ""
    cell_id: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class MagicResult:
    """Result that `-o` returns and `-v` stores.

    Attributes:
        verdicts: one per instance; with a prompt, those of the version before the search.
        optimization: the search's result, None without a prompt.
    """

    verdicts: tuple[Verdict, ...]
    optimization: Optimization | None = None

    @property
    def verdict(self) -> Verdict:
        """The first verdict; the only one unless several template instances were judged."""
        return self.verdicts[0]

    def __repr__(self) -> str:
        """Returns a line for each verdict, and one for the search's result."""
        from kernelmate.report.tables import verdict_line
        from kernelmate.report.versions import best_line

        lines = [verdict_line(verdict).plain for verdict in self.verdicts]
        return "\n".join(lines + ([] if self.optimization is None else [best_line(self.optimization).plain]))


class NotebookState:
    """One notebook's sessions and kernels.

    Attributes:
        settings_given: settings that the notebook has set, by name.
        known: kernels by bound name.
        failed: kernels whose last text was rejected, by the name that they would have; `repairs` has the results of
            repairing them.
    """

    def __init__(self) -> None:
        self.settings_given: dict[str, Any] = {}
        self.known: dict[str, BoundKernel] = {}
        self.failed: dict[str, BoundKernel] = {}
        self.repairs: dict[str, Optimization] = {}
        self.panels: dict[str, Any] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._turn = threading.RLock()
        self._listeners = threading.local()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._copies = 0
        self._kept: dict[str, Path] = {}
        self._spending: SpendingBudget | None = None
        _desks.add(self)

    def settings(self, options: Mapping[str, Any] | None = None) -> Settings:
        """Returns the effective settings: a cell's options, then the notebook's, then those of files and environment.

        Raises:
            UsageError: a value is invalid.
        """
        return load_settings(**{**self.settings_given, **(options or {})})

    def session(self, options: Mapping[str, Any] | None = None, owner: str = "") -> Session:
        """Returns a session, cached by settings and owner, whose worker is reused.

        Args:
            options: the cell's options.
            owner: identifies background work, which has its own worker; empty for cells.

        Raises:
            UsageError: a setting is invalid.
            BackendUnavailable: the backend cannot run here.
        """
        settings = self.settings(options)
        key = owner, settings.model_dump_json()
        with self._turn:
            if key not in self._sessions:
                self._sessions[key] = Session(settings, self._stage)
            return self._sessions[key]

    def spending(self, settings: Settings) -> SpendingBudget:
        """Returns the spending budget of all the notebook's searches together.

        The amount already spent also counts against a new limit.
        """
        with self._turn:
            if self._spending is None:
                self._spending = SpendingBudget(settings.claude_budget_usd)
            self._spending.limit_usd = settings.claude_budget_usd
            return self._spending

    def close_session(self, owner: str) -> None:
        """Closes an owner's sessions and their workers, even while these work."""
        with self._turn:
            closing = [self._sessions.pop(key) for key in list(self._sessions) if key[0] == owner]
        for session in closing:
            session.close()

    def set(self, name: str, value: str) -> None:
        """Sets one setting for this notebook; all sessions are closed.

        Raises:
            UsageError: there is no such setting, or it does not take the value.
        """
        given = {**self.settings_given, name: value}
        target = load_settings(**given).target
        if target is not None:
            find_target(target)
        self.settings_given = given
        self.close_sessions()

    @contextmanager
    def listening(self, listener: OnStage) -> Iterator[None]:
        """Context manager that makes this thread's work report its stages to a listener."""
        before = getattr(self._listeners, "listener", None)
        self._listeners.listener = listener
        try:
            yield
        finally:
            self._listeners.listener = before

    def _stage(self, stage: str, done: int, total: int) -> None:
        listener: OnStage | None = getattr(self._listeners, "listener", None)
        if listener is not None:
            listener(stage, done, total)

    def folder(self) -> Path:
        """Returns a new folder for one judgement's copies of live objects; deleted when the notebook closes."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)
        self._copies += 1
        path = Path(self._folder.name) / str(self._copies)
        path.mkdir()
        return path

    def keep(self, name: str, folder: Path | None) -> None:
        """Associates a kernel's name with a folder of copies, and deletes its earlier copies."""
        self.drop(self._kept.pop(name, None))
        if folder is not None:
            self._kept[name] = folder

    def keep_as(self, name: str, other: str) -> None:
        """Moves the copies of one kernel's name to another name."""
        folder = self._kept.pop(name, None)
        if folder is not None:
            self.keep(other, folder)

    def drop(self, folder: Path | None) -> None:
        """Deletes a folder of copies."""
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def preparer(self, session: Session) -> Prepare:
        """Returns a function that loads versions judged by a session into this process."""

        def prepare(version: KernelVersion) -> tuple[Compiled, Launcher | None]:
            prepared = session.prepare(version.kernel, version.verdict.instance, version.contract)[0]
            compiled = prepared.compiled
            if not compiled.ok or compiled.binary != version.verdict.binary:
                raise SourceError(
                    f"{version.kernel.name} does not compile to the code that was judged.",
                    file=version.kernel.unit.path,
                    hint="A header or a setting has changed since: run the cell again.",
                )
            if version.kernel.parts:
                return compiled, None
            contract = prepared.contract if version.kernel.unit.language == "triton" else None
            return compiled, make_launcher(session.backend, version.kernel, compiled, session.target, contract)

        return prepare

    def close_sessions(self) -> None:
        """Closes all sessions and their workers; the next judgement starts new ones."""
        with self._turn:
            sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def close(self) -> None:
        """Closes all sessions and deletes the copies of live objects."""
        self.close_sessions()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def handle_named(namespace: Mapping[str, Any], name: str) -> KernelHandle:
    """Returns the kernel that is bound under a name.

    Raises:
        UsageError: nothing is bound to this name, or the value is not a kernel.
    """
    found = namespace.get(name)
    if isinstance(found, KernelHandle):
        return found
    kernels = sorted(key for key, value in namespace.items() if isinstance(value, KernelHandle))
    hint = f"Kernels here are {', '.join(kernels)}." if kernels else "Run a cell that begins with %%kernelmate first."
    what = "There is nothing called" if found is None else "No kernel is called"
    raise UsageError(f"{what} {name} in this notebook.", hint=hint)


_desks: weakref.WeakSet[NotebookState] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for notebook in tuple(_desks):
        notebook.close()
