"""Inline completion by the local model, judged before it is shown; off by default.

Typed text never leaves the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernelmate.errors import KernelmateError
from kernelmate.records import Kernel, Verdict
from kernelmate.session.authors import AuthorFailed, SearchOptions, local_model
from kernelmate.suggest.codec import CHAT
from kernelmate.suggest.local.completing import complete
from kernelmate_lsp.configuration import Configuration
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import CUDA_LANGUAGES, DocumentKernel, DocumentKernels, has_contract, read
from kernelmate_lsp.server import KernelmateServer

_ID = "kernelmate-inline-completion"
_DOCUMENTS = tuple(
    types.TextDocumentFilterLanguage(language=language) for language in sorted({*CUDA_LANGUAGES, "python"})
)


async def inline(server: KernelmateServer, params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
    """Returns the model's continuation in a kernel of a trusted workspace, if the kernel with it is right.

    Empty without a model, and for a kernel without a contract, which cannot be judged.
    """
    configuration = server.configuration_of(params.text_document.uri)
    if not (configuration.own.inline_completion and configuration.trusted):
        return []
    reading = await server.reading(params.text_document.uri)
    if reading is None:
        return []
    line, column = reading.positions.place(params.position)
    spot = reading.spot_at(line, column)
    if spot is None or not has_contract(spot.kernel):
        return []
    rows = reading.positions.lines
    before = "".join(rows[: line - 1]) + rows[line - 1][: column - 1]
    after = rows[line - 1][column - 1 :] + "".join(rows[line:])
    kernel = spot.kernel

    def work(job: QueuedJob) -> str:
        return _asked(job, kernel, configuration, before, after)

    try:
        text = await server.completing.submit("inline", work)
        if not text.strip() or not await _is_right(server, reading, spot, f"{before}{text}{after}"):
            return []
    except JobUnwanted:
        return []
    here = types.Range(params.position, params.position)
    return [types.InlineCompletionItem(text, range=here)]


async def _is_right(server: KernelmateServer, reading: DocumentKernels, spot: DocumentKernel, text: str) -> bool:
    """Judges a document's kernel with a completed text; returns True if it is right and has no error.

    Raises:
        JobUnwanted: another completion was asked for meanwhile.
    """
    known = server.known.get(reading.uri)
    if known is None:
        return False  # it was closed meanwhile
    changed = await asyncio.to_thread(read, reading.uri, reading.version, known.language, text, reading.codec)
    completed = changed.spot(spot.id)
    if completed is None or not has_contract(completed.kernel):
        return False
    configuration = server.configuration_of(reading.uri)

    def work(job: QueuedJob) -> tuple[Verdict, ...]:
        return server.judge.bench(job, completed.kernel, configuration, lambda stage, done, total: None)

    try:
        verdicts = await server.judging.submit(("inline", reading.uri, ""), work)
    except KernelmateError:
        return False  # the contract, or its reference, needs a change, which a benchmark tells
    return all(verdict.correct is True and verdict.accepted is not False for verdict in verdicts)


def _asked(job: QueuedJob, kernel: Kernel, configuration: Configuration, before: str, after: str) -> str:
    try:
        settings = configuration.settings(Path(kernel.unit.path).parent)
        model = local_model(settings, kernel, SearchOptions(stop=job.unwanted.is_set), wanted=False)
        if model is None or model.agree is not None or model.codec != CHAT:
            # There is no model, or it is on another machine (to which typed text is not sent), or it only writes whole
            # kernels.
            return ""
        return complete(model.endpoint(), before, after, stop=job.unwanted.is_set)
    except (AuthorFailed, KernelmateError):
        return ""


def begin(server: KernelmateServer) -> None:
    """Announces inline completion to a client without dynamic registration; while it is off, results are empty."""
    if not _dynamic(server):
        server.protocol.fm.feature_options[types.TEXT_DOCUMENT_INLINE_COMPLETION] = types.InlineCompletionOptions()


async def announce(server: KernelmateServer) -> None:
    """Registers inline completion with the client if the settings enable it, and unregisters it if they do not."""
    wanted = server.trusted and any(one.own.inline_completion for one in server.configurations())
    if wanted == server.completes or not _dynamic(server):
        return
    server.completes = wanted
    with contextlib.suppress(JsonRpcException):  # a client that refuses does without
        if wanted:
            options = types.InlineCompletionRegistrationOptions(document_selector=list(_DOCUMENTS))
            made = types.Registration(_ID, types.TEXT_DOCUMENT_INLINE_COMPLETION, options)
            await server.client_register_capability_async(types.RegistrationParams([made]))
        else:
            gone = types.Unregistration(_ID, types.TEXT_DOCUMENT_INLINE_COMPLETION)
            await server.client_unregister_capability_async(types.UnregistrationParams([gone]))


def _dynamic(server: KernelmateServer) -> bool:
    """Returns True if the client supports dynamic registration of inline completion."""
    document = server.client_capabilities.text_document
    own = None if document is None else document.inline_completion
    return own is not None and bool(own.dynamic_registration)


def register(server: KernelmateServer) -> None:
    """Registers the handler; `begin` and `announce` tell clients of it, which then send a request per keystroke."""

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION)
    async def on_inline(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        return await inline(server, params)
