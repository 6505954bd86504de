"""A client of the real server process, as an editor is one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Union

import pytest
from lsprotocol import types
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient, client_capabilities

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0

SCALE = """\
// /// kernelmate
// sizes = [{ n = 4096 }, { n = 1000 }]
// grid = "(n + block - 1) // block"
// block = 256
// reference = "a * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// a = "float32 = 3"
// n = "int32"
// ///
__global__ void scale(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""
KERNEL_LINE, STORE_LINE = 11, 13
"""Lines of `SCALE`, from 0."""
BROKEN = SCALE.replace("y[i] = a * x[i];", "y[i] = a * z[i];")
"""`SCALE` with an undeclared name."""


class Editor:
    """One open editor: documents, and what the server said of them.

    Attributes:
        client: speaks to the server. applied: edits that the server asked for. answers: what its questions are answered by.
        consents: texts that the server asked to send elsewhere. agrees: what it is answered.
        sections: names of the settings that the server asked for. told: what it said of itself.
    """

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.applied: list[types.ApplyWorkspaceEditParams] = []
        self.asked: list[types.ShowMessageRequestParams] = []
        self.answers: list[str | None] = []
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.published: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        self.settings: dict[str, Any] = {}
        self.scoped: dict[str, dict[str, Any]] = {}
        self.messages: list[str] = []
        self.progress: list[dict[str, Any]] = []
        self.begun: asyncio.Queue[types.ProgressToken] = asyncio.Queue()
        self.consents: list[dict[str, Any]] = []
        self.agrees = False
        self.sections: set[str | None] = set()
        self.told: types.ServerCapabilities | None = None

    def open(self, path: Path, text: str, language: str = "cuda-cpp") -> str:
        uri = path.as_uri()
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str) -> int:
        """Exchange the whole text."""
        self.texts[uri] = text
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))
        return self.versions[uri]

    def edit(self, uri: str, start: tuple[int, int], end: tuple[int, int], new: str) -> int:
        """Change a part of the text, positions as the protocol counts them; `texts` is not kept up."""
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        span = types.Range(types.Position(*start), types.Position(*end))
        change = types.TextDocumentContentChangePartial(span, new)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        return self.versions[uri]

    async def problems(self, uri: str, version: int | None = None) -> list[types.Diagnostic]:
        """The problems of a version, the newest where none is named."""
        wanted = self.versions[uri] if version is None else version

        def there() -> bool:
            return uri in self.published and self.published[uri][0] == wanted

        await until(there, f"problems of version {wanted} of {uri}")
        return self.published[uri][1]

    async def lenses(self, uri: str) -> list[str]:
        document = types.TextDocumentIdentifier(uri)
        found = await self.client.text_document_code_lens_async(types.CodeLensParams(document))
        return [lens.command.title for lens in found or [] if lens.command is not None]

    async def hover(self, uri: str, line: int, character: int) -> str | None:
        place = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
        found = await self.client.text_document_hover_async(place)
        return None if found is None else found.contents.value

    async def hints(self, uri: str) -> list[types.InlayHint]:
        span = types.Range(types.Position(0, 0), types.Position(100_000, 0))
        asked = types.InlayHintParams(types.TextDocumentIdentifier(uri), span)
        return list(await self.client.text_document_inlay_hint_async(asked) or [])

    async def actions(
        self, uri: str, line: int, diagnostics: list[types.Diagnostic] | None = None
    ) -> list[types.CodeAction]:
        span = types.Range(types.Position(line, 0), types.Position(line, 0))
        context = types.CodeActionContext(diagnostics or [])
        asked = types.CodeActionParams(types.TextDocumentIdentifier(uri), span, context)
        return list(await self.client.text_document_code_action_async(asked) or [])

    async def inline(self, uri: str, line: int, character: int) -> list[types.InlineCompletionItem]:
        context = types.InlineCompletionContext(types.InlineCompletionTriggerKind.Automatic)
        asked = types.InlineCompletionParams(
            context, types.TextDocumentIdentifier(uri), types.Position(line, character)
        )
        return list(await self.client.text_document_inline_completion_async(asked) or [])

    async def command(self, name: str, **given: Any) -> Any:
        return await self.client.workspace_execute_command_async(types.ExecuteCommandParams(name, [given]))

    def after(self, edit: types.WorkspaceEdit, uri: str) -> str:
        """The text that an edit makes of a document."""
        text = self.texts[uri]
        for change in edit.document_changes or []:
            assert change.text_document.uri == uri
            assert change.text_document.version == self.versions[uri]
            for one in sorted(change.edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
                text = text[: offset(text, one.range.start)] + one.new_text + text[offset(text, one.range.end) :]
        return text


def offset(text: str, position: types.Position) -> int:
    """Returns the offset of a position in a text; columns count UTF-16 units, as in the protocol."""
    start = 0
    for _ in range(position.line):
        breaks = [text.find(end, start) for end in ("\r", "\n")]
        here = min(one for one in breaks if one >= 0)
        start = here + (2 if text.startswith("\r\n", here) else 1)
    units = 0
    while units < position.character:
        units += 2 if ord(text[start]) > 0xFFFF else 1
        start += 1
    return start


async def until(there: Callable[[], bool], what: str) -> None:
    """Wait for something that the server does by itself."""
    for _ in range(int(WAIT_S / 0.02)):
        if there():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"waited {WAIT_S:g} s in vain for {what}")


def capabilities() -> types.ClientCapabilities:
    """Those of VS Code, with what newer ones have and the stock ones lack."""
    made = client_capabilities("visual-studio-code")
    assert made.workspace is not None
    assert made.text_document is not None
    made.workspace.workspace_edit = types.WorkspaceEditClientCapabilities(
        document_changes=True, change_annotation_support=types.ChangeAnnotationsSupportOptions()
    )
    made.workspace.inlay_hint = types.InlayHintWorkspaceClientCapabilities(refresh_support=True)
    made.text_document.inlay_hint = types.InlayHintClientCapabilities(dynamic_registration=True)
    made.text_document.inline_completion = types.InlineCompletionClientCapabilities()
    made.notebook_document = types.NotebookDocumentClientCapabilities(types.NotebookDocumentSyncClientCapabilities())
    return made


@contextlib.asynccontextmanager
async def editor(
    folder: Path,
    *,
    settings: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    folders: Sequence[Path] = (),
    scoped: dict[Path, dict[str, Any]] | None = None,
    command: Sequence[str] = (sys.executable, "-P", "-m", "kernelmate_lsp"),
    able: types.ClientCapabilities | None = None,
) -> AsyncIterator[Editor]:
    """A server with its client, ended as an editor ends it.

    `folders` are the workspace's, the one folder where none are named; `scoped` are settings of some of them; `command`
    starts another server; `able` says what the editor can do, if it is not VS Code.
    """
    client = LanguageClient(converter_factory=_converter)
    made = Editor(client)
    made.settings = {"backend": "emulator", **(settings or {})}
    made.scoped = {path.as_uri(): values for path, values in (scoped or {}).items()}
    _listen(client, made)
    path = os.pathsep.join([str(ROOT), str(ROOT / "lsp")])
    env = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    await client.start_io(*command, env=env, cwd=str(folder))
    roots = [types.WorkspaceFolder(one.as_uri(), one.name) for one in folders or [folder]]
    result = await client.initialize_session(
        types.InitializeParams(
            able or capabilities(), workspace_folders=roots, root_uri=folder.as_uri(), initialization_options=options
        )
    )
    made.told = result.capabilities
    try:
        yield made
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.shutdown_session(), 20)
        await client.stop()


def _converter() -> Any:
    """The protocol's converter, which takes an action that has a command for the command alone."""
    converter = default_converter()

    def structure(given: dict[str, Any], _: object) -> types.Command | types.CodeAction:
        return converter.structure(given, types.Command if isinstance(given.get("command"), str) else types.CodeAction)

    converter.register_structure_hook(types.Command | types.CodeAction, structure)
    converter.register_structure_hook(Union[types.Command, types.CodeAction], structure)  # noqa: UP007
    return converter


def _listen(client: LanguageClient, made: Editor) -> None:
    """Keep what the server says, and answer what it asks."""

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def published(params: types.PublishDiagnosticsParams) -> None:
        made.published[params.uri] = params.version, list(params.diagnostics)

    @client.feature(types.WORKSPACE_APPLY_EDIT)
    def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        made.applied.append(params)
        return types.ApplyWorkspaceEditResult(applied=True)

    @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def ask(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
        made.asked.append(params)
        answer = made.answers.pop(0) if made.answers else None
        return None if answer is None else types.MessageActionItem(answer)

    @client.feature("kernelmate/consent")
    def consent(params: Any) -> dict[str, bool]:
        made.consents.append({name: getattr(params, name) for name in ("text", "host", "model", "workspace", "price")})
        return {"agreed": made.agrees}

    @client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
    def refresh_lenses(*_: object) -> None:
        return None

    @client.feature(types.WORKSPACE_INLAY_HINT_REFRESH)
    def refresh_hints(*_: object) -> None:
        return None

    @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
    def create(params: types.WorkDoneProgressCreateParams) -> None:
        made.begun.put_nowait(params.token)

    @client.feature(types.WINDOW_SHOW_MESSAGE)
    def message(params: types.ShowMessageParams) -> None:
        made.messages.append(params.message)

    @client.feature(types.WINDOW_LOG_MESSAGE)
    def logged(params: types.LogMessageParams) -> None:
        return None

    @client.feature(types.PROGRESS)
    def progress(params: types.ProgressParams) -> None:
        made.progress.append(params.value if isinstance(params.value, dict) else vars(params.value))

    @client.feature(types.WORKSPACE_CONFIGURATION)
    def configuration(params: types.ConfigurationParams) -> list[Any]:
        made.sections |= {item.section for item in params.items}
        return [made.settings | made.scoped.get(item.scope_uri or "", {}) for item in params.items]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Play one scenario to its end, in a thread of its own: Playwright's tests leave a running loop in the main one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, asyncio.wait_for(scenario, 300)).result()


def place(text: str, word: str, occurrence: int = 0) -> tuple[int, int]:
    """Line and column, from 0, of a word in a text without characters beyond the first plane."""
    at = -1
    for _ in range(occurrence + 1):
        at = text.index(word, at + 1)
    before = text[:at]
    return before.count("\n"), at - (before.rfind("\n") + 1)
