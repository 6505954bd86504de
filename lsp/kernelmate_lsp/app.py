"""Creates a server with all features registered."""

from __future__ import annotations

import contextlib

from lsprotocol import types

from kernelmate.errors import KernelmateError
from kernelmate_lsp.features import (
    actions,
    commands,
    completion,
    documents,
    headers,
    hover,
    inlay_hints,
    inline_completion,
    lenses,
    pages,
    prompts,
    results,
    structure,
    writing,
)
from kernelmate_lsp.server import KernelmateServer

FEATURES = (
    documents, hover, lenses, inlay_hints, structure, completion, commands, prompts, results, pages, headers, writing, actions, inline_completion,
)  # fmt: skip


def make_server() -> KernelmateServer:
    """Returns a server that is ready to be started."""
    server = KernelmateServer()

    @server.feature(types.INITIALIZE)
    def on_initialize(params: types.InitializeParams) -> None:
        server.begin(params)
        inline_completion.begin(server)

    @server.feature(types.INITIALIZED)
    async def on_initialized(_: types.InitializedParams) -> None:
        await server.fetch_configuration()
        await inline_completion.announce(server)
        # If there is no compiler, the first document reports it.
        with contextlib.suppress(KernelmateError):
            server.checker.start()

    @server.feature(types.SHUTDOWN)
    def on_shutdown(*_: object) -> None:
        server.end()
        server.drop_requests()

    for feature in FEATURES:
        feature.register(server)
    return server
