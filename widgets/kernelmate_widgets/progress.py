"""Progress in a cell's output: only for work that lasts, and replaced by its result."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from IPython.display import DisplayHandle, display

from kernelmate.records import Judged, SearchState
from kernelmate.report.words import STAGES

AFTER_S = 1.0
"""Seconds of work before anything is shown."""

EVERY_S = 0.25
"""Seconds between two updates."""

TAIL = 1200
"""Characters of a model's text that are shown while it is generated."""


class CellProgress:
    """Shows a cell's progress, and replaces it by the result.

    Args:
        quiet: show nothing.
        live: True if the front end can replace output; in a terminal nothing is shown until the end.
    """

    def __init__(self, *, quiet: bool, live: bool) -> None:
        self._enabled = live and not quiet
        self._quiet = quiet
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._handle: DisplayHandle | None = None
        self._judged: list[Judged] = []
        self._said = self._written = self._trying = ""

    def stage(self, stage: str, done: int, total: int) -> None:
        """Shows the progress of a stage; called by the session in this thread."""
        count = f" {min(done + 1, total)} of {total}" if total > 1 else ""
        self._update(f"{STAGES.get(stage, stage)}{count}")

    def step(self, text: str) -> None:
        """Shows the step that begins now, in words."""
        self._trying = ""
        self._update(text)

    def trying(self, state: SearchState) -> None:
        """Shows the version being tried, and the best so far."""
        from kernelmate.report.versions import trying_line

        self._trying = trying_line(state)
        self._update("")

    def text(self, piece: str) -> None:
        """Shows the end of a model's text below the progress."""
        self._written = (self._written + piece)[-TAIL:]
        self._update(self._said)

    def judged(self, found: Judged) -> None:
        """One more candidate has its verdict."""
        self._judged.append(found)
        self._written = ""

    def result(self, bundle: dict[str, Any]) -> None:
        """Shows the result in place of the progress."""
        if self._quiet:
            return
        if self._handle is not None:
            self._handle.update(bundle, raw=True)
        else:
            display(bundle, raw=True)

    def first(self, bundle: dict[str, Any]) -> None:
        """Shows preliminary results if the front end can replace them later."""
        if not self._enabled:
            return
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(bundle, raw=True)
        else:
            self._handle.update(bundle, raw=True)

    def gone(self) -> None:
        """Removes the progress when there is no result."""
        if self._handle is not None:
            self._handle.update({"text/plain": "", "text/html": ""}, raw=True)

    def _update(self, text: str) -> None:
        self._said = text
        now = time.monotonic()
        if not self._enabled or now - self._began < AFTER_S or now - self._shown_at < EVERY_S:
            return
        self._shown_at = now
        shown = f"{text} ({len(self._judged)} candidates judged)" if self._judged and not self._trying else text
        if self._trying:
            shown = f"{self._trying} ({text})" if text else self._trying
        bundle = {"text/plain": f"{shown} ...", "text/html": f"<div>{escape(shown)} …</div>"}
        if self._written:
            bundle["text/plain"] += f"\n\n{self._written}"
            bundle["text/html"] += f"<pre>{escape(self._written)}</pre>"
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(bundle, raw=True)
        else:
            self._handle.update(bundle, raw=True)
