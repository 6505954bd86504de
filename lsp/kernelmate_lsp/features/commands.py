"""Commands: their arguments, progress and errors; judging a kernel, and applying a candidate.

Each takes one object, `{"uri": ..., "kernel": ...}` with further keys, and returns the document that the command line
prints with `--json`. Clients without menus can use `workspace/executeCommand`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from kernelmate.errors import KernelmateError, UsageError
from kernelmate.records import Judged, Verdict
from kernelmate.report.json import error_json, verdicts_json
from kernelmate.report.words import STAGES
from kernelmate_lsp.document_state import BenchmarkedText, DocumentState, SearchOutcome
from kernelmate_lsp.edits import document_text, other_edits, workspace_edit
from kernelmate_lsp.features import diagnostics
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.judging import OnStage
from kernelmate_lsp.phrases import candidate_phrase, others_phrase
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels
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


_TEXTS = ("uri", "kernel", "prompt", "objective", "author", "baseline", "function", "arrays", "folder")
KEYS: Mapping[str, tuple[type | UnionType, str]] = {
    **dict.fromkeys(_TEXTS, (str, "a text")),
    **dict.fromkeys(("candidate", "maxCandidates", "version"), (int, "a whole number")),
    "budgetS": (int | float, "a number of seconds"),
    "propose": (bool, "true or false"),
    "workDoneToken": (str | int, "a text or a whole number"),
}
"""Keys of the commands' argument objects, each with its type and that type in words."""

Run = Callable[[KernelmateServer, Mapping[str, Any]], Awaitable[Any]]

UNTRUSTED = "This workspace is not trusted: kernels are compiled here, and nothing is run."


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """The document and kernel that a command applies to."""

    known: DocumentState
    reading: DocumentKernels
    spot: DocumentKernel

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the judging job of this kernel; a kernel has at most one."""
        return "judge", self.known.uri, self.spot.id


async def place_of(server: KernelmateServer, given: Mapping[str, Any]) -> CommandTarget:
    """Returns the kernel that a command names; without a name, the only one of its document.

    Raises:
        UsageError: there is no such document or kernel.
    """
    uri = given.get("uri")
    reading = await server.reading(uri) if isinstance(uri, str) else None
    if reading is None:
        raise UsageError("The document is not open.", hint="Open it first; a command takes {uri, kernel}.")
    spots = reading.spots
    wanted = given.get("kernel")
    spot = reading.spot(str(wanted)) if wanted is not None else (spots[0] if len(spots) == 1 else None)
    if spot is None and wanted is not None:
        spot = next((one for one in spots if one.kernel.name == wanted), None)
    if spot is None:
        names = ", ".join(one.id for one in spots) or "none"
        raise UsageError(f"There is no kernel {wanted!r} in this document.", hint=f"There is {names}.")
    return CommandTarget(server.known[reading.uri], reading, spot)


async def benchmark(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Judges a kernel, shows the findings in the text, and returns the verdicts; null if cancelled."""
    place = await place_of(server, given)
    demand_trust(server)

    def work(job: QueuedJob, tell: OnStage) -> tuple[Verdict, ...]:
        return server.judge.bench(job, place.spot.kernel, server.configuration_of(place.known.uri), tell)

    verdicts = await run_with_progress(server, place.key, f"Benchmark {place.spot.kernel.name}", given, work)
    if verdicts is None:
        return None
    place.known.learn(place.spot.id, BenchmarkedText(place.spot.kernel, verdicts, time.time()))
    await show_again(server, place)
    return verdicts_json(verdicts)


async def apply(server: KernelmateServer, given: Mapping[str, Any]) -> Any:
    """Applies a candidate of the last search to the text; the client asks the user for confirmation if it can."""
    place = await place_of(server, given)
    found, judged = candidate_of(place, given.get("candidate", 0))
    return {"applied": await propose(server, place, found, judged)}


def candidate_of(place: CommandTarget, index: object) -> tuple[SearchOutcome, Judged]:
    """Returns the last search of a kernel, and one candidate of it.

    Raises:
        UsageError: there is no candidate of this number.
    """
    found = place.known.found.get(place.spot.id)
    if found is None or not isinstance(index, int) or not 0 <= index < len(found.optimization.candidates):
        raise UsageError("There is no such candidate.", hint="Run Optimize on this kernel first.")
    return found, found.optimization.candidates[index]


async def propose(server: KernelmateServer, place: CommandTarget, found: SearchOutcome, judged: Judged) -> bool:
    """Send a candidate as an edit; returns True if it was applied.

    Raises:
        UsageError: the kernel changed since it was judged.
    """
    edit = edit_of(server, place, found, judged)
    label = f"KernelMate: {judged.candidate.author}"
    answer = await server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))
    return bool(answer.applied)


def edit_of(
    server: KernelmateServer, place: CommandTarget, found: SearchOutcome, judged: Judged
) -> types.WorkspaceEdit:
    """Returns a candidate as an edit of the present document.

    Raises:
        UsageError: the kernel changed since it was judged.
    """
    if not found.holds(place.spot):
        raise UsageError(
            f"{place.spot.kernel.name} was changed after its candidates were judged.", hint="Run Optimize again."
        )
    candidate = judged.candidate
    changed = document_text(place.reading, candidate.kernel)
    label = f"KernelMate: {candidate.author}"
    others = other_edits(server.workspace, place.spot.kernel, candidate.contract)
    described = f"{candidate_phrase(judged.verdict)}{others_phrase(others)}\n{candidate.why}"
    return workspace_edit(place.reading, changed, label, described, annotated=server.annotates, others=others)


async def run_with_progress(
    server: KernelmateServer,
    key: tuple[str, str, str],
    title: str,
    given: Mapping[str, Any],
    work: Callable[[QueuedJob, OnStage], Any],
) -> Any:
    """Runs work in the judging queue with progress that the user can cancel; returns None if it is cancelled."""
    async with WorkDoneProgress(
        server, title, given.get("workDoneToken"), lambda: server.judging.cancel(key)
    ) as progress:

        def tell(stage: str, done: int, total: int) -> None:
            count = f" {min(done + 1, total)} of {total}" if total > 1 else ""
            progress.tell(f"{STAGES.get(stage, stage)}{count}", done * 100 // total if total else None)

        try:
            return await server.judging.submit(key, lambda job: work(job, tell))
        except JobUnwanted:
            return None


async def show_again(server: KernelmateServer, place: CommandTarget) -> None:
    """Publishes diagnostics again, and lets the client refresh lenses and hints."""
    reading = await server.reading(place.known.uri)
    if reading is not None:
        diagnostics.publish(server, place.known, reading)
    server.refresh()


def demand_trust(server: KernelmateServer) -> None:
    """Check that the user trusts the workspace, since the command executes its code.

    Raises:
        UsageError: the workspace is not trusted.
    """
    if not server.trusted:
        raise UsageError(UNTRUSTED, hint="Trust the workspace to judge its kernels.")


def register(server: KernelmateServer) -> None:
    """Registers the commands."""
    register_command(server, "kernelmate.benchmark", benchmark)
    register_command(server, "kernelmate.apply", apply)


def register_command(server: KernelmateServer, name: str, run: Run) -> None:
    """Registers a function as a command of this name."""

    @server.command(name)
    async def command(*given: Any) -> Any:
        return await command_result(server, run, _checked(name, given))


def _checked(name: str, given: tuple[Any, ...]) -> Mapping[str, Any]:
    """Returns a command's argument object without keys whose value is null.

    Raises:
        JsonRpcInvalidParams: the argument is not an object, or the value of a key has the wrong type.
    """
    if len(given) > 1 or (given and not isinstance(given[0], Mapping)):
        raise JsonRpcInvalidParams(f"{name} takes one object.")
    found = {key: value for key, value in given[0].items() if value is not None} if given else {}
    for key, (kind, told) in KEYS.items():
        value = found.get(key)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise JsonRpcInvalidParams(f"{key} must be {told}.")
    return found


async def command_result(server: KernelmateServer, run: Run, given: Mapping[str, Any]) -> Any:
    """Returns a command's result; an error that the user can act on is shown, and returned as a document."""
    try:
        return await run(server, given)
    except KernelmateError as error:
        server.say(f"{error.message} {error.hint or ''}".strip(), types.MessageType.Warning)
        return error_json(error)
    except JsonRpcException as error:
        # The client's own answer to a question or an edit, which failed there.
        return error_json(UsageError(f"The editor did not answer: {error.message}"))
