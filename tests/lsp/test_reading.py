"""Reading of long documents during typing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from lsprotocol import types

import kernelmate_lsp.server as module
from kernelmate_lsp.server import LARGE, KernelmateServer
from kernelmate_lsp.texts import ExactWorkspace
from tests.lsp.client import SCALE, run

URI = "file:///folder/long.cu"
KEYS = 20


def put(server: KernelmateServer, version: int) -> None:
    text = f"// {version}\n" + SCALE + "// filler\n" * (LARGE // 8)
    server.workspace.put_text_document(types.TextDocumentItem(URI, "cuda-cpp", version, text))


def test_of_the_versions_that_come_while_one_is_read_only_the_newest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[int] = []
    go = threading.Event()
    real = module.read

    def slow(uri: str, version: int, *rest: Any) -> Any:
        versions.append(version)
        go.wait(60)
        return real(uri, version, *rest)

    monkeypatch.setattr(module, "read", slow)
    server = KernelmateServer()
    server.protocol._workspace = ExactWorkspace(None, types.TextDocumentSyncKind.Incremental, [], "utf-16")

    async def scenario() -> None:
        put(server, 1)
        server.open(URI, "cuda-cpp")
        asked = [asyncio.ensure_future(server.reading(URI))]
        for version in range(2, KEYS + 1):
            await asyncio.sleep(0.01)
            put(server, version)
            asked += [asyncio.ensure_future(server.reading(URI)) for _ in range(3)]
        go.set()
        found = await asyncio.gather(*asked)
        assert {None if one is None else one.version for one in found} == {KEYS}
        assert versions == [1, KEYS]
        assert found[0] is not None
        assert [spot.kernel.name for spot in found[0].spots] == ["scale"]

        # A document that is closed meanwhile is answered, and one that is opened again is read anew.
        go.clear()
        put(server, KEYS + 1)
        waiting = asyncio.ensure_future(server.reading(URI))
        await asyncio.sleep(0.05)
        server.close(URI)
        go.set()
        assert await waiting is None
        put(server, 1)
        server.open(URI, "cuda-cpp")
        again = await server.reading(URI)
        assert again is not None
        assert again.text.startswith("// 1\n")

    try:
        run(scenario())
    finally:
        go.set()
        server.end()
