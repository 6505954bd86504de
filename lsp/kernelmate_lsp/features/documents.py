"""Handles opened, changed, saved and closed documents, and starts their compilation."""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types

from kernelmate_lsp.features import inline_completion
from kernelmate_lsp.features.diagnostics import schedule
from kernelmate_lsp.features.results import benchmark_saved
from kernelmate_lsp.reading import path_of
from kernelmate_lsp.server import KernelmateServer


def opened(server: KernelmateServer, uri: str, language: str | None) -> None:
    """Creates the state of an opened document and compiles it."""
    server.open(uri, language)
    schedule(server, uri, delay_s=0)


def changed(server: KernelmateServer, uri: str, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
    """Compiles a document again after a delay without changes."""
    own = server.configuration_of(uri).own
    if uri in server.known and own.check_on_type:
        schedule(server, uri, delay_s=own.debounce_ms / 1000, near=_edited_line(changes))


def closed(server: KernelmateServer, uri: str) -> None:
    """Discards a closed document and its diagnostics."""
    server.close(uri)
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))


def _edited_line(changes: Sequence[types.TextDocumentContentChangeEvent]) -> int:
    """Returns the line, from 1, of the client's last change; 1 if the whole text changed."""
    partial = [one for one in changes if isinstance(one, types.TextDocumentContentChangePartial)]
    return partial[-1].range.start.line + 1 if partial else 1


def register(server: KernelmateServer) -> None:
    """Registers the handlers of opened, changed and closed files and notebooks, and of changed settings."""
    _register_files(server)
    _register_notebooks(server)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(_: types.DidChangeConfigurationParams) -> None:
        await server.fetch_configuration()
        await inline_completion.announce(server)
        for uri in tuple(server.known):
            schedule(server, uri, delay_s=0)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_folders(_: types.DidChangeWorkspaceFoldersParams) -> None:
        await did_change_configuration(types.DidChangeConfigurationParams(None))

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def did_change_watched(_: types.DidChangeWatchedFilesParams) -> None:
        server.checker.forget()  # headers, settings or build may have changed
        for uri in tuple(server.known):
            schedule(server, uri, delay_s=server.configuration_of(uri).own.debounce_ms / 1000)


def _register_files(server: KernelmateServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        opened(server, params.text_document.uri, params.text_document.language_id)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        changed(server, params.text_document.uri, params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        uri = params.text_document.uri
        if uri in server.known:
            schedule(server, uri, delay_s=0)
            if server.configuration_of(uri).own.benchmark_on_save and server.trusted:
                server.start(f"benchmark {uri}", benchmark_saved(server, uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        closed(server, params.text_document.uri)


def _register_notebooks(server: KernelmateServer) -> None:
    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def notebook_did_open(params: types.DidOpenNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            opened(server, cell.uri, cell.language_id)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def notebook_did_change(params: types.DidChangeNotebookDocumentParams) -> None:
        if params.change.cells is not None:
            _cells_changed(server, params.change.cells)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def notebook_did_save(params: types.DidSaveNotebookDocumentParams) -> None:
        for uri in tuple(server.known):
            if path_of(uri) == path_of(params.notebook_document.uri):
                schedule(server, uri, delay_s=0)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def notebook_did_close(params: types.DidCloseNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            closed(server, cell.uri)


def _cells_changed(server: KernelmateServer, cells: types.NotebookDocumentCellChanges) -> None:
    structure = cells.structure
    for cell in (None if structure is None else structure.did_open) or []:
        opened(server, cell.uri, cell.language_id)
    for gone in (None if structure is None else structure.did_close) or []:
        closed(server, gone.uri)
    for text in cells.text_content or []:
        changed(server, text.document.uri, text.changes)
