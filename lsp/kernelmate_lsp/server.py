"""The server object: documents, job queues, and the connection to the client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from kernelmate.version import VERSION
from kernelmate_lsp.checking import Checker
from kernelmate_lsp.configuration import SECTION, Configuration, read_configuration
from kernelmate_lsp.document_state import DocumentState
from kernelmate_lsp.job_queue import JobQueue
from kernelmate_lsp.judging import EditorJudge
from kernelmate_lsp.protocol import AnsweringProtocol
from kernelmate_lsp.reading import DocumentKernels, path_of, read
from kernelmate_lsp.texts import ExactWorkspace

LARGE = 100_000
"""Number of characters from which a document is read in a thread."""

_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(
            notebook="jupyter-notebook",
            cells=[types.NotebookCellLanguage("python"), types.NotebookCellLanguage("cuda-cpp")],
        )
    ],
    save=True,
)

CONFIGURATION_WAIT_S = 2.0
"""Seconds that the first document waits for the client's settings."""

KEPT_CLOSED = 32
"""Number of closed documents whose verdicts are kept."""

log = logging.getLogger(__name__)


class KernelmateServer(LanguageServer):
    """One client's server.

    Attributes:
        configuration: the client's latest configuration of the window; `configuration_of` returns a document's.
        known: state of each open document, by URI.
        can_consent: True if the client can show a text and ask whether it may leave this machine.
        completes: True while inline completion is registered with the client.
        checker, judge: compile and judge; used only in the threads of `checks` and `judging`.
    """

    protocol: AnsweringProtocol

    def __init__(self) -> None:
        super().__init__(
            "kernelmate",
            VERSION,
            protocol_cls=AnsweringProtocol,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=_NOTEBOOKS,
        )
        self.configuration = Configuration()
        self._of_folders: dict[Path, Configuration] = {}
        self.known: dict[str, DocumentState] = {}
        self._closed: dict[str, DocumentState] = {}
        self.checker, self.judge = Checker(), EditorJudge()
        self.checks = JobQueue("kernelmate-checks", self.checker.kill)
        self.judging = JobQueue("kernelmate-judging", self.judge.kill)
        self.completing = JobQueue("kernelmate-completing", lambda: None)
        self.trusted = True
        self.can_consent = False
        self.completes = False
        self._configured = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._readings: dict[str, asyncio.Task[None]] = {}
        self._told: set[str] = set()

    # ------------------------------------------------------------------------------------------- the client

    def begin(self, params: types.InitializeParams) -> None:
        """Applies the client's initialisation parameters."""
        options = params.initialization_options if isinstance(params.initialization_options, dict) else {}
        self.trusted = options.get("trusted", True) is not False
        self.can_consent = options.get("consent") is True
        self.configuration = read_configuration(options.get("settings"), trusted=self.trusted)
        # pygls' own workspace counts lines like Python, not like the protocol.
        made = self.protocol.workspace
        self.protocol._workspace = ExactWorkspace(
            made.root_uri, types.TextDocumentSyncKind.Incremental, list(made.folders.values()), made.position_encoding
        )

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Logs a protocol error, which the user cannot resolve; answers a message that is not JSON with an error."""
        log.warning("a message could not be handled: %s", error)
        if source is JsonRpcException and isinstance(error, ValueError | RecursionError):
            self.protocol.refuse_text()

    def configure(self, configuration: Configuration, of_folders: Mapping[Path, Configuration]) -> None:
        """Applies new settings, and reports invalid ones, each sentence once.

        Args:
            configuration: the window's configuration.
            of_folders: the configuration of each workspace folder.
        """
        self.configuration, self._of_folders = configuration, dict(of_folders)
        for problem in [one for each in (configuration, *of_folders.values()) for one in each.problems]:
            if problem not in self._told:
                self._told.add(problem)
                self.say(problem, types.MessageType.Warning)
        self.checker.forget()
        self._configured.set()

    def include(self, folder: str) -> None:
        """Adds a folder to the include path of all documents, until the client sends its settings again."""
        self.configuration = self.configuration.including(folder)
        self._of_folders = {path: one.including(folder) for path, one in self._of_folders.items()}
        self.checker.forget()

    def configurations(self) -> tuple[Configuration, ...]:
        """Returns the window's configuration and those of the workspace folders."""
        return self.configuration, *self._of_folders.values()

    def configuration_of(self, uri: str) -> Configuration:
        """Returns the configuration of a document: that of the innermost workspace folder that contains it."""
        path = Path(path_of(uri))
        holding = [folder for folder in self._of_folders if path.is_relative_to(folder)]
        return self._of_folders[max(holding, key=lambda one: len(one.parts))] if holding else self.configuration

    async def configured(self) -> None:
        """Waits for the client's settings, at most `CONFIGURATION_WAIT_S` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._configured.wait(), CONFIGURATION_WAIT_S)

    async def fetch_configuration(self) -> None:
        """Requests the client's settings if it supports that."""
        workspace = self.client_capabilities.workspace
        if workspace is None or not workspace.configuration:
            self.configure(self.configuration, {})
            return
        folders = list(self.workspace.folders.values())
        items = [types.ConfigurationItem(section=SECTION)]
        items += [types.ConfigurationItem(scope_uri=one.uri, section=SECTION) for one in folders]
        try:
            sent = await self.workspace_configuration_async(types.ConfigurationParams(items))
            first, *others = sent or [None]
        except Exception as error:  # noqa: BLE001 -- whatever a client answers, the server goes on with what it has
            log.warning("the client did not send its settings: %s", error)
            self._configured.set()
            return
        made = [read_configuration(one, trusted=self.trusted) for one in others]
        paths = [Path(path_of(one.uri)) for one in folders]
        self.configure(read_configuration(first, trusted=self.trusted), dict(zip(paths, made, strict=False)))

    def say(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Shows the user a message."""
        self.window_show_message(types.ShowMessageParams(kind, message))

    @property
    def annotates(self) -> bool:
        """Returns True if the client asks the user to confirm annotated edits."""
        workspace = self.client_capabilities.workspace
        edit = None if workspace is None else workspace.workspace_edit
        return edit is not None and edit.change_annotation_support is not None

    def refresh(self) -> None:
        """Asks the client to refresh lenses and hints."""
        workspace = self.client_capabilities.workspace
        if workspace is None:
            return
        if workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    # --------------------------------------------------------------------------------------------- documents

    def open(self, uri: str, language: str | None) -> DocumentState:
        """Creates the state of a document; one that is opened again gets its earlier verdicts."""
        known = self.known.get(uri) or self._closed.pop(uri, None)
        if known is None or known.language != language:
            known = DocumentState(uri, language)
        self.known[uri] = known
        return known

    def close(self, uri: str) -> None:
        """Drops a document's jobs, and what depends on its versions; its verdicts are kept for when it is opened again."""
        known = self.known.pop(uri, None)
        if known is not None:
            self._closed[uri] = known.without_versions()
            if len(self._closed) > KEPT_CLOSED:
                del self._closed[next(iter(self._closed))]
        self.checks.cancel(uri)
        self._cancel(uri)

    async def reading(self, uri: str) -> DocumentKernels | None:
        """Returns the newest version of a document; None if the document is not open."""
        while (known := self.known.get(uri)) is not None:
            document = self.workspace.get_text_document(uri)
            version = document.version or 0
            if known.reading is not None and known.reading.version == version:
                return known.reading
            if len(document.source) < LARGE:
                known.reading = read(uri, version, known.language, document.source, self.workspace.position_codec)
                return known.reading
            # One reading at a time: of the versions that come meanwhile, as one types, only the newest is read.
            if uri not in self._readings:
                self._readings[uri] = asyncio.ensure_future(self._read_large(known))
            await asyncio.shield(self._readings[uri])
        return None

    async def _read_large(self, known: DocumentState) -> None:
        """Reads the newest version of a document in a thread."""
        document = self.workspace.get_text_document(known.uri)
        codec, version = self.workspace.position_codec, document.version or 0
        try:
            known.reading = await asyncio.to_thread(read, known.uri, version, known.language, document.source, codec)
        finally:
            self._readings.pop(known.uri, None)

    # ------------------------------------------------------------------------------------------------- tasks

    def start(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts work in the background; earlier work under the same key is cancelled."""
        self._cancel(key)
        task = asyncio.ensure_future(self._guard(work))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._tasks.pop(key, None) if self._tasks.get(key) is done else None)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("background work failed")

    def _cancel(self, key: str) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def drop_requests(self) -> None:
        """Cancels all requests except the current one.

        Pygls 2.1 fails to do so, because its dictionary changes during iteration.
        """
        for number, future in tuple(self.protocol._request_futures.items()):
            if number != self.protocol.msg_id and not future.done():
                future.cancel()

    def end(self) -> None:
        """Cancels all work and ends all processes."""
        for key in tuple(self._tasks):
            self._cancel(key)
        self.checks.close()
        self.judging.close()
        self.completing.close()
        self.judge.close()
        self.checker.close()
