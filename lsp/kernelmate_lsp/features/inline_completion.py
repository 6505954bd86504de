"""Inline completion by the local model; off by default. Typed text never leaves the machine."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from kernelmate.errors import KernelmateError
from kernelmate.records import Kernel
from kernelmate.session.authors import AuthorFailed, SearchOptions, local_model
from kernelmate.suggest.codec import CHAT
from kernelmate.suggest.local.completing import complete
from kernelmate_lsp.configuration import Configuration
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.server import KernelmateServer


async def inline(server: KernelmateServer, params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
    """Returns the model's continuation in a kernel of a trusted workspace; none without a model."""
    configuration = server.configuration_of(params.text_document.uri)
    if not (configuration.own.inline_completion and configuration.trusted):
        return []
    reading = await server.reading(params.text_document.uri)
    if reading is None:
        return []
    line, column = reading.positions.place(params.position)
    spot = reading.spot_at(line, column)
    if spot is None:
        return []
    rows = reading.positions.lines
    before = "".join(rows[: line - 1]) + rows[line - 1][: column - 1]
    after = rows[line - 1][column - 1 :] + "".join(rows[line:])
    kernel = spot.kernel

    def work(job: QueuedJob) -> str:
        return _asked(job, kernel, configuration, before, after)

    try:
        text = await server.completing.submit("inline", work)
    except JobUnwanted:
        return []
    here = types.Range(params.position, params.position)
    return [types.InlineCompletionItem(text, range=here)] if text.strip() else []


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


def register(server: KernelmateServer) -> None:
    """Registers inline completion; clients request nothing while it is switched off."""

    # pygls advertises it only if registered with options.
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def on_inline(params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
        return await inline(server, params)
