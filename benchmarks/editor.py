"""How soon the language server answers while one types: `python -m benchmarks.editor`. Needs pygls; no GPU.

Drives the real server process as an editor does, with no debounce, so that what is measured is what the server adds. Each
edit of an example makes a text that nothing has compiled before; bare NVRTC compiles the same texts in this process.

Goals: from an edit to its problems at most NVRTC's own time and 30 ms (median); hover and lenses of a text that was compiled
under 20 ms; the list of actions under 50 ms; any of them while a search runs under 50 ms; memory after 1,000 edits under
50 MB more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from benchmarks.check_overhead import bare_nvrtc
from benchmarks.machine import describe

ROOT = Path(__file__).resolve().parents[1]
EDITS = 9
ASKED = 40
GROWTH_EDITS = 1000


class Client:
    """An editor with one document, which knows when the problems of which version came."""

    def __init__(self) -> None:
        self.wire = LanguageClient("benchmark", "1")
        self.version = 0
        self.came: dict[int, float] = {}
        self.process: asyncio.subprocess.Process | None = None

        @self.wire.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.came.setdefault(params.version or 0, time.perf_counter())

        for name in (types.WINDOW_LOG_MESSAGE, types.WINDOW_SHOW_MESSAGE, types.PROGRESS):
            self.wire.feature(name)(lambda _: None)

    async def start(self, folder: Path) -> None:
        """Start the server, with its history and caches in a folder."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lsp")]),
            "KERNELMATE_CACHE_DIR": str(folder / "cache"),
            "KERNELMATE_HISTORY_FILE": str(folder / "history.db"),
        }
        await self.wire.start_io(sys.executable, "-m", "kernelmate_lsp", env=environment)
        options = {"settings": {"backend": "emulator", "debounceMs": 0, "otherTargets": ["L4"]}}
        await self.wire.initialize_async(
            types.InitializeParams(types.ClientCapabilities(), initialization_options=options)
        )
        self.wire.initialized(types.InitializedParams())
        self.process = getattr(self.wire, "_server", None)

    def open(self, path: Path, text: str) -> str:
        """Open a document; its versions go on from those of the last one."""
        self.version += 1
        item = types.TextDocumentItem(path.as_uri(), "cuda-cpp", self.version, text)
        self.wire.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return path.as_uri()

    async def problems(self, version: int) -> float:
        """When the problems of a version came."""
        while version not in self.came:
            await asyncio.sleep(0.0005)
        return self.came[version]

    async def edit(self, uri: str, text: str, line: int) -> float:
        """Exchange one line, as typing does, and wait for the problems; seconds from one to the other."""
        self.version += 1
        span = types.Range(types.Position(line, 0), types.Position(line + 1, 0))
        change = types.TextDocumentContentChangePartial(span, text.split("\n")[line] + "\n")
        document = types.VersionedTextDocumentIdentifier(self.version, uri)
        sent = time.perf_counter()
        self.wire.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        return await self.problems(self.version) - sent

    def resident_mb(self) -> float:
        """Resident memory of the server's process, 10^6 bytes."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def edited(text: str, number: int) -> tuple[str, int]:
    """The text with a statement of its own in its first kernel, on that kernel's first line, and which line that is."""
    body = text.index("{", text.index("__global__")) + 1
    line = text.count("\n", 0, body)
    end = text.index("\n", body)
    rest = re.sub(r" volatile int edit\w* = \d+;", "", text[body:end])
    return text[:body] + f" volatile int edit_{number} = {number};" + rest + text[end:], line


async def typing(client: Client) -> list[float]:
    """A row for each example: an edit's problems, NVRTC's own time, and what is between them; seconds."""
    from kernelmate.compiler import bench_inputs, find_target
    from kernelmate.records import Unit
    from kernelmate.source import find_kernels

    beyond = []
    for path in sorted((ROOT / "examples").glob("*.cu")):
        original = path.read_text()
        uri = client.open(path, original)
        await client.problems(client.version)
        ours, bare = [], []
        for number in range(EDITS):
            text, line = edited(original, number + 1)
            kernel = find_kernels(Unit(str(path), text))[0]
            source, options = bench_inputs(kernel, find_target(None))
            try:
                begun = time.perf_counter()
                await asyncio.to_thread(bare_nvrtc, source, path.name, options)
            except RuntimeError:
                break
            bare.append(time.perf_counter() - begun)
            ours.append(await client.edit(uri, text, line))
        client.wire.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        if bare:
            more = statistics.median(ours) - statistics.median(bare)
            beyond.append(more)
            print(
                f"{path.name:<22} edit to problems {statistics.median(ours) * 1e3:6.1f} ms   NVRTC "
                f"{statistics.median(bare) * 1e3:6.1f} ms   beyond it {more * 1e3:+6.1f} ms",
                flush=True,
            )
    return beyond


async def answers(client: Client, uri: str, place: types.Position) -> dict[str, list[float]]:
    """Seconds of each kind of request."""
    document = types.TextDocumentIdentifier(uri)
    here = types.Range(place, place)
    everything = types.Range(types.Position(0, 0), types.Position(1000, 0))
    kinds: dict[str, Callable[[], Awaitable[Any]]] = {
        "hover": lambda: client.wire.text_document_hover_async(types.HoverParams(document, place)),
        "code lenses": lambda: client.wire.text_document_code_lens_async(types.CodeLensParams(document)),
        "inlay hints": lambda: client.wire.text_document_inlay_hint_async(types.InlayHintParams(document, everything)),
        "code actions": lambda: client.wire.text_document_code_action_async(
            types.CodeActionParams(document, here, types.CodeActionContext([]))
        ),
    }
    found = {}
    for name, ask in kinds.items():
        found[name] = []
        for _ in range(ASKED):
            begun = time.perf_counter()
            await ask()
            found[name].append(time.perf_counter() - begun)
    return found


def told(title: str, found: dict[str, list[float]]) -> None:
    """Print a row for each kind of request."""
    for name, seconds in found.items():
        high = sorted(seconds)[int(0.95 * len(seconds))]
        print(
            f"{title:<28} {name:<14} median {statistics.median(seconds) * 1e3:6.2f} ms   95 of 100 under {high * 1e3:6.2f} ms"
        )


async def measure() -> int:
    """Print every table; 1 where a goal is missed."""
    with tempfile.TemporaryDirectory() as folder:
        client = Client()
        await client.start(Path(folder))
        beyond = await typing(client)
        path = ROOT / "examples" / "softmax.cu"
        text = path.read_text()
        uri = client.open(path, text)
        await client.problems(client.version)
        at = text.index("softmax(", text.index("__global__"))
        line = text.count("\n", 0, at)
        place = types.Position(line, at - text.rindex("\n", 0, at) - 1)
        await client.wire.text_document_hover_async(types.HoverParams(types.TextDocumentIdentifier(uri), place))
        await asyncio.sleep(1)
        idle = await answers(client, uri, place)
        told("compiled, nothing running", idle)
        asked = {"uri": uri, "prompt": "make it faster", "author": "recipes", "propose": False}
        search = asyncio.ensure_future(
            client.wire.workspace_execute_command_async(types.ExecuteCommandParams("kernelmate.optimize", [asked]))
        )
        await asyncio.sleep(1)
        busy = await answers(client, uri, place)
        still = not search.done()
        await search
        told("while a search runs" if still else "a search ended meanwhile", busy)
        client.wire.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        uri = client.open(path, text)
        await client.problems(client.version)
        sizes = []
        for number in range(GROWTH_EDITS + 100):
            changed, row = edited(text, number % 50)
            await client.edit(uri, changed, row)
            if number in {99, GROWTH_EDITS + 99}:
                sizes.append(client.resident_mb())
        grown = sizes[1] - sizes[0]
        print(f"memory: {sizes[0]:.0f} MB, and {grown:+.1f} MB after {GROWTH_EDITS:,} more edits")
        await client.wire.shutdown_async(None)
        client.wire.exit(None)
        await client.wire.stop()
    more = statistics.median(beyond)
    print(f"beyond NVRTC's own time, median over {len(beyond)} examples: {more * 1e3:.1f} ms (goal: 30)")
    met = (
        more <= 0.030
        and statistics.median(idle["hover"]) < 0.020
        and statistics.median(idle["code lenses"]) < 0.020
        and statistics.median(idle["code actions"]) < 0.050
        and all(statistics.median(seconds) < 0.050 for seconds in busy.values())
        and grown < 50
    )
    return 0 if met else 1


def main(arguments: list[str] | None = None) -> int:
    """Print the machine and every table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(
        arguments
    )
    print(describe())
    return asyncio.run(measure())


if __name__ == "__main__":
    sys.exit(main())
