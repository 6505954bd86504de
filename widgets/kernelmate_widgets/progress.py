"""Progress in a cell's output, shown within half a second and then replaced by the result."""

from __future__ import annotations

import threading
import time
from html import escape
from typing import Any

from IPython.display import DisplayHandle, display

from kernelmate.records import Judged, SearchState
from kernelmate.report.words import STAGES, number

AFTER_S = 0.3
"""Seconds of work before anything is shown."""

EVERY_S = 0.5
"""Seconds between two updates; the elapsed time is updated even if the work reports nothing."""

KEEPS = "the notebook's stop button ends the search and keeps what was judged"


class CellProgress:
    """Shows a cell's progress, and replaces it by the result. A separate thread updates the elapsed time.

    Args:
        quiet: True to show nothing.
        live: True if the front end can replace output; in a terminal nothing is shown until the end.
        place: an existing output, for work that a button starts; None for a new one in the running cell.
    """

    def __init__(self, *, quiet: bool, live: bool, place: DisplayHandle | None = None) -> None:
        self._enabled = live and not quiet
        self.quiet = quiet
        self._began = time.monotonic()
        self._handle: DisplayHandle | None = place if self._enabled else None
        self._said, self._trying = "starting", ""
        self._searching, self._written = False, 0
        self.found: list[Judged] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        if self._enabled:
            # The output's place is made here: a thread's output may go to another cell.
            if self._handle is None:
                self._handle = DisplayHandle()
                self._handle.display({"text/plain": ""}, raw=True)
            threading.Thread(target=self._tick, name="kernelmate progress", daemon=True).start()

    def stage(self, stage: str, done: int, total: int) -> None:
        """Shows the progress of a stage; called by the session in this thread."""
        count = f" {min(done + 1, total)} of {total}" if total > 1 else ""
        self._said = f"{STAGES.get(stage, stage)}{count}"

    def step(self, text: str) -> None:
        """Shows a step that begins, in words."""
        self._searching = True
        self._said, self._trying, self._written = text, "", 0

    def trying(self, state: SearchState) -> None:
        """Shows the version that the search tries now, and the best version so far."""
        from kernelmate.report.versions import trying_line

        self._searching, self._written = True, 0
        self._trying, self._said = trying_line(state, with_time=False), ""

    def text(self, piece: str) -> None:
        """Counts the characters that a model writes; the text itself is not shown."""
        self._written += len(piece)

    def judged(self, found: Judged) -> None:
        """Stores a judged candidate."""
        self.found.append(found)

    @property
    def line(self) -> str:
        """Formats the progress in one line: version tried, stage or step, and elapsed time."""
        parts = [one for one in (self._trying, self._said) if one]
        if self._written:
            parts.append(f"the model writes, {number(self._written)} characters so far")
        return f"{' | '.join(parts)} | {time.monotonic() - self._began:.0f} s"

    def result(self, bundle: dict[str, Any]) -> DisplayHandle | None:
        """Shows the result in place of the progress; returns its output if that can be replaced."""
        self._end()
        if self.quiet:
            return None
        if self._handle is None:
            display(bundle, raw=True)
        else:
            self._handle.update(bundle, raw=True)
        return self._handle

    def first(self, bundle: dict[str, Any]) -> None:
        """Shows preliminary results if the front end can replace them later."""
        if self._handle is not None:
            self._end()
            self._handle.update(bundle, raw=True)

    def __enter__(self) -> CellProgress:
        """Returns this object."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends the progress; after an exception, removes it unless a result replaced it."""
        if kind is not None and self._handle is not None and not self._over.is_set():
            self._end()
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)
        self._end()

    def _end(self) -> None:
        with self._lock:  # an update that has begun would come after the result
            self._over.set()

    def _tick(self) -> None:
        self._over.wait(AFTER_S)
        while not self._over.is_set():
            with self._lock:
                if self._over.is_set() or self._handle is None:
                    return
                self._handle.update(self._bundle(), raw=True)
            self._over.wait(EVERY_S)

    def _bundle(self) -> dict[str, str]:
        line = self.line
        hint = f'<div style="opacity:.7">{escape(KEEPS)}</div>' if self._searching else ""
        return {"text/plain": f"{line} ...", "text/html": f"<div>{escape(line)} …</div>{hint}"}
