"""Progress on standard error, only on a terminal and only for long work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from kernelmate.report.words import STAGES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.spinner import Spinner

    from kernelmate.records import Judged, Objective, SearchState

MOST_WRITTEN = 40
"""Maximum number of characters of a model's output that are shown."""
AFTER_S = 2.0
"""Seconds of work before anything is shown."""


class TerminalProgress:
    """Shows progress, and candidates as they are judged. A context manager that erases its output at the end.

    Args:
        console: a console that writes to standard error.
        quiet: True to show nothing.
        after_s: seconds before anything is shown.
    """

    def __init__(self, console: Console, *, quiet: bool = False, after_s: float = AFTER_S) -> None:
        self._console = console
        self._enabled = console.is_terminal and not console.is_dumb_terminal and not quiet
        self._after_s = after_s
        self._lock = threading.Lock()
        self._over = False
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._timer: threading.Timer | None = None
        self._stage: tuple[str, int, int] = ("starting", 0, 0)
        self._written = ""
        self._judged: list[Judged] = []
        self._subject = ""
        self._began = time.monotonic()
        self._trying: tuple[SearchState, float] | None = None
        self._first = ""
        self._read = ""

    def __enter__(self) -> TerminalProgress:
        """Starts the delay until progress is shown."""
        if self._enabled:
            self._timer = threading.Timer(self._after_s, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Erases the output."""
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.stop()

    def stage(self, stage: str, done: int, total: int) -> None:
        """Shows the progress of a stage; passed to the session as `on_progress`."""
        self._written = ""
        self._stage = (STAGES.get(stage, stage), done, total)

    def kernel(self, name: str, done: int, total: int) -> None:
        """Sets the name and number of the kernel that the following stages concern."""
        self._subject = f"{name} ({done + 1} of {total}): "

    def step(self, text: str) -> None:
        """Shows the name of a step that begins; the stages of judging replace it."""
        self._stage, self._written, self._trying = (text, 0, 0), "", None

    def read(self, objective: Objective) -> None:
        """Shows the interpretation of the prompt."""
        self._read = f"read as: {objective.reading}"

    def schedule(self, name: str) -> None:
        """Sets the name of the schedule that the following stages concern."""
        self._subject = f"{name}: "

    def text(self, piece: str) -> None:
        """Shows the end of a model's answer beside the step, as the answer arrives."""
        self._written = (self._written + piece)[-4 * MOST_WRITTEN :]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager that suspends drawing, for instance while a question is asked."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.stop()
                self._live = None
        try:
            yield
        finally:
            if self._enabled and not self._over:
                self._start()

    def judged(self, item: Judged) -> None:
        """Shows a candidate with its verdict; passed to the session as `on_judged`."""
        self._judged.append(item)
        if self._enabled and not self._first and item.verdict.worth_taking:
            from kernelmate.report.versions import first_line

            self._first = first_line(item, time.monotonic() - self._began)

    def trying(self, state: SearchState) -> None:
        """Shows the version that the search tries now, and the best version so far; passed as `on_trying`."""
        self._trying = state, time.monotonic()

    def _start(self) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        with self._lock:
            if self._over:
                return
            # ASCII, so that no terminal's encoding matters.
            self._spinner = Spinner("line")
            self._live = Live(
                console=self._console,
                get_renderable=self._view,
                refresh_per_second=5,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()

    def _view(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from kernelmate.report.versions import candidate_table, trying_line
        from kernelmate.report.words import printable

        stage, done, total = self._stage
        count = f" {min(done + 1, total)}/{total}" if total > 1 else ""
        assert self._spinner is not None
        # Text of a model is not markup, and may hold what would steer a terminal.
        written = printable(" ".join(self._written.split()), keep="")[-MOST_WRITTEN:]
        line = f"{self._subject}{stage}{count}" + (f": ...{written}" if written else "")
        if self._trying is not None:
            state, told_at = self._trying
            line = f"{trying_line(state, state.elapsed_s + time.monotonic() - told_at)} ({line})"
        self._spinner.update(text=Text(line))
        above: list[RenderableType] = [candidate_table(tuple(self._judged), reasons=False)] if self._judged else []
        above = [*([Text(printable(self._read))] if self._read else []), *above]
        return Group(*above, *([Text(self._first)] if self._first else []), self._spinner)
