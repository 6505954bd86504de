"""Work-done progress of a long request, which the user can cancel."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

from lsprotocol import types

from kernelmate_lsp.server import KernelmateServer


class WorkDoneProgress:
    """Context manager for the work-done progress of one request.

    Args:
        server: the client's server.
        title: name of the work.
        token: the client's own progress token, or None.
        on_cancel: called in the event loop when the user cancels.
    """

    def __init__(
        self, server: KernelmateServer, title: str, token: types.ProgressToken | None, on_cancel: Callable[[], None]
    ) -> None:
        self._server = server
        self._title = title
        self._token = token
        self._on_cancel = on_cancel
        self._shown = False
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> WorkDoneProgress:
        """Shows the progress if the client supports it."""
        progress = self._server.work_done_progress
        if self._token is None and self._can_create():
            self._token = str(uuid.uuid4())
            # A client that refuses progress still gets the result.
            with contextlib.suppress(Exception):
                # Shielded: cancelling a task that waits for this answer would break pygls's own bookkeeping.
                await asyncio.shield(progress.create_async(self._token))
                self._shown = True
        elif self._token is not None:
            self._shown = True
        if self._shown and self._token is not None:
            progress.begin(self._token, types.WorkDoneProgressBegin(self._title, cancellable=True))
            progress.tokens[self._token].add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the progress."""
        if self._shown and self._token is not None:
            self._server.work_done_progress.end(self._token, types.WorkDoneProgressEnd())
            self._server.work_done_progress.tokens.pop(self._token, None)
            self._shown = False

    def tell(self, message: str, percentage: int | None = None) -> None:
        """Reports progress; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._tell, message, percentage)

    def _tell(self, message: str, percentage: int | None) -> None:
        if self._shown and self._token is not None:
            report = types.WorkDoneProgressReport(message=message, percentage=percentage)
            self._server.work_done_progress.report(self._token, report)

    def _ended(self, future: object) -> None:
        if getattr(future, "cancelled", lambda: False)():
            self._on_cancel()

    def _can_create(self) -> bool:
        window = self._server.client_capabilities.window
        return window is not None and bool(window.work_done_progress)
