"""The server under hard conditions: files that vanish or are huge, settings that are wrong, crashes, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from lsprotocol import types

from tests.lsp.client import BROKEN, SCALE, STORE_LINE, editor, place, run, until

pytestmark = pytest.mark.exhaustive(share=0.4)
SLOW = SCALE.replace("{ n = 4096 }", "{ n = 262144 }").replace(
    "    if (i < n)", "    for (int k = 0; k < 4000; ++k) a = a * 0.5f + x[(i + k) % n];\n    if (i < n)"
)
"""Judging it takes the emulator long, so that there is time to do something meanwhile. It is wrong, which does not matter."""


def watched(path: Path, kind: types.FileChangeType) -> types.DidChangeWatchedFilesParams:
    return types.DidChangeWatchedFilesParams([types.FileEvent(path.as_uri(), kind)])


def test_a_document_whose_file_was_deleted_is_served_on_and_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(path, SCALE)
            assert await it.problems(uri) == []
            path.unlink()
            it.client.workspace_did_change_watched_files(watched(path, types.FileChangeType.Deleted))
            refused = await it.command("kernelmate.compare", uri=uri, baseline="saved")
            assert "cannot be read" in refused["error"]["message"]
            it.change(uri, SCALE.replace("a * x[i];", "a * z[i];"))
            assert len(await it.problems(uri)) == 1
            it.change(uri, SCALE)
            assert await it.problems(uri) == []
            document = await it.command("kernelmate.benchmark", uri=uri)
            assert document["verdicts"][0]["correct"] is True

    run(scenario())


def test_a_deleted_header_is_a_problem_until_it_is_back(tmp_path: Path) -> None:
    header = tmp_path / "helper.cuh"
    text = "#pragma once\n__device__ float twice(float v) { return 2 * v; }\n"
    header.write_text(text)
    kernel = '#include "helper.cuh"\n' + SCALE.replace("a * x[i]", "a * twice(x[i])")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", kernel)
            assert await it.problems(uri) == []
            header.unlink()
            it.client.workspace_did_change_watched_files(watched(header, types.FileChangeType.Deleted))
            await until(lambda: bool(it.published[uri][1]), "a problem")
            header.write_text(text)
            it.client.workspace_did_change_watched_files(watched(header, types.FileChangeType.Created))
            await until(lambda: not it.published[uri][1], "the problem to go")

    run(scenario())


def test_a_text_that_changes_under_a_benchmark_has_its_result_marked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            judging = asyncio.ensure_future(it.command("kernelmate.benchmark", uri=uri))
            await asyncio.wait_for(it.begun.get(), 60)
            for number in range(5):
                it.change(uri, SCALE.replace("a * x[i]", f"a * x[i] + {number}"))
            document = await asyncio.wait_for(judging, 120)
            assert document["verdicts"][0]["correct"] is True, "of the text that it was asked for"
            assert await it.problems(uri) == []
            assert "before the last change" in (await it.lenses(uri))[-1]

    run(scenario())


def test_a_document_that_is_closed_under_a_benchmark_costs_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri, other = it.open(tmp_path / "scale.cu", SCALE), it.open(tmp_path / "other.cu", SCALE)
            await it.problems(uri)
            judging = asyncio.ensure_future(it.command("kernelmate.benchmark", uri=uri))
            await asyncio.wait_for(it.begun.get(), 60)
            it.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
            await asyncio.wait_for(judging, 120)
            assert await it.lenses(uri) == []
            assert await it.problems(other) == []
            assert len(await it.lenses(other)) == 3

    run(scenario())


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_a_server_that_ends_under_running_work_leaves_no_process_and_the_next_one_goes_on(
    tmp_path: Path, how: str
) -> None:
    async def scenario() -> None:
        own = {child.pid for child in psutil.Process().children()}
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SLOW)
            await it.problems(uri)
            judging = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            await until(lambda: any(one["kind"] == "report" for one in it.progress), "the work to be under way")
            (server,) = [child for child in psutil.Process().children() if child.pid not in own]
            below: list[psutil.Process] = []

            def two_run() -> bool:
                below[:] = server.children(recursive=True)
                return len(below) >= 2

            await until(two_run, "a compiler and a worker to run")
            if how == "killed":
                os.kill(server.pid, signal.SIGKILL)
            else:
                await asyncio.wait_for(it.client.shutdown_async(None), 30)
                it.client.exit(None)
            await until(lambda: not alive([server, *below]), "every process to end")
            judging.cancel()
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            assert await it.problems(uri) == []
            assert (await it.command("kernelmate.benchmark", uri=uri))["verdicts"][0]["correct"] is True

    run(scenario())


def test_nothing_of_the_folder_it_is_started_in_and_no_file_outside_is_run(tmp_path: Path) -> None:
    """Modules beside the document have the names of those that server, compiler and worker import."""
    folder, outside = tmp_path / "work", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    # The one folder outside of its own that a reference may write to.
    marker = Path("/dev/shm", f"kernelmate-was-run-{os.getpid()}")
    mark = f"open({str(marker)!r}, 'a').write(__name__ + '\\n')\n"
    for name in (
        "json",
        "sitecustomize",
        "usercustomize",
        "msgspec",
        "numpy",
        "pygls",
        "tree_sitter",
        "kernelmate_lsp",
    ):
        (folder / f"{name}.py").write_text(mark)
    (folder / "kernelmate").mkdir()
    (folder / "kernelmate" / "__init__.py").write_text(mark)
    (outside / "reference.py").write_text(mark + "def scale(x, a): return a * x\n")
    (outside / "shapes.cuh").write_text(
        f"#define MARK {str(marker)!r}\n__device__ float same(float v) {{ return v; }}\n"
    )
    text = (
        f'#include "../outside/shapes.cuh"\n#include "{outside}/shapes.cuh"\n#include "../outside/reference.py"\n'
        + SCALE.replace('"a * x"', '"../outside/reference.py:scale"').replace(
            "// block = 256", '// block = 256\n// inputs = "../outside/reference.py:make"'
        )
    )

    async def scenario() -> None:
        async with editor(folder) as it:
            uri = it.open(folder / "scale.cu", text)
            assert await it.problems(uri), "a header that is no CUDA is told"
            good = it.open(folder / "good.cu", SCALE.replace('"a * x"', '"../outside/reference.py:scale"'))
            assert await it.problems(good) == []
            python = it.open(folder / "ops.py", "import numpy\n" + mark, "python")
            await it.problems(python)
            for one in (uri, good):
                await it.lenses(one)
                await it.hover(one, STORE_LINE, 4)
                await it.actions(one, STORE_LINE)
            await asyncio.sleep(0.5)
            assert not marker.exists(), marker.read_text()
            # What a benchmark calls is the reference, and nothing of the folder's other modules.
            document = await it.command("kernelmate.benchmark", uri=good)
            assert document["verdicts"][0]["correct"] is True
            assert "reference" in marker.read_text()
            assert "json" not in marker.read_text()

    try:
        run(scenario())
    finally:
        marker.unlink(missing_ok=True)


def test_opening_a_file_runs_nothing_of_it_and_reads_no_reference(tmp_path: Path) -> None:
    # The one folder outside of its own that a reference may write to.
    marker = Path("/dev/shm", f"kernelmate-was-run-{os.getpid()}")
    (tmp_path / "reference.py").write_text(f"open({str(marker)!r}, 'w')\ndef scale(x, a): return a * x\n")
    (tmp_path / "conftest.py").write_text(f"open({str(marker)!r}, 'w')\n")
    text = SCALE.replace('"a * x"', '"reference.py:scale"')

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            await it.problems(uri)
            await it.lenses(uri)
            await it.hover(uri, *place(text, "scale(const"))
            await it.actions(uri, STORE_LINE)
            await asyncio.sleep(0.5)
            assert not marker.exists()
            # The benchmark is what calls it, in the worker: so the test would have seen it.
            document = await it.command("kernelmate.benchmark", uri=uri)
            assert document["verdicts"][0]["correct"] is True
            assert marker.exists()

    try:
        run(scenario())
    finally:
        marker.unlink(missing_ok=True)


def test_in_a_workspace_that_is_not_trusted_kernels_are_compiled_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kernelmate]\nno_such_setting = 1\n")

    async def scenario() -> None:
        settings = {"build": str(tmp_path), "cacheDir": str(tmp_path / "cache")}
        async with editor(tmp_path, settings=settings, options={"trusted": False}) as it:
            uri = it.open(tmp_path / "scale.cu", BROKEN)
            assert len(await it.problems(uri)) == 1
            it.change(uri, SCALE)
            assert await it.problems(uri) == []
            (figures,) = await it.lenses(uri)
            assert "regs" in figures
            refused = await it.command("kernelmate.benchmark", uri=uri)
            assert "not trusted" in refused["error"]["message"]
            assert not (tmp_path / "cache").exists()
            assert not [one for one in await it.actions(uri, STORE_LINE) if "rewrite" in str(one.kind)]

    run(scenario())


def test_fifty_open_files_are_each_compiled_and_forgotten_when_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uris = [
                it.open(tmp_path / f"scale{number}.cu", SCALE.replace("a * x[i]", f"a * x[i] + {number} * q[i]"))
                for number in range(50)
            ]
            for uri in uris:
                assert any("undefined" in one.message for one in await it.problems(uri))
            for uri in uris:
                it.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
            await until(lambda: all(it.published[uri][1] == [] for uri in uris), "problems to be taken back")
            assert await it.lenses(uris[0]) == []

    run(scenario())


def test_a_file_of_twenty_thousand_lines_does_not_keep_requests_waiting(tmp_path: Path) -> None:
    filler = "".join(
        f"// line {number}\n__device__ int f{number}(int v) {{ return v + {number}; }}\n" for number in range(10_000)
    )

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            small = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(small)
            uri = it.open(tmp_path / "large.cu", filler + BROKEN)
            assert await it.lenses(small)
            (problem,) = await it.problems(uri)
            assert problem.range.start.line == 20_000 + STORE_LINE
            for number in range(5):
                it.edit(uri, (number, 0), (number, 0), "//")
            await it.problems(uri)

    run(scenario())


def test_settings_that_cannot_be_used_are_told_once_and_the_others_hold(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {
            "target": "no such GPU 9000",
            "std": "c++98",
            "debounceMs": "soon",
            "nonsense": 1,
            "codeLens": False,
        }
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            problems = await it.problems(uri)
            assert any("no such GPU 9000" in one.message for one in problems)
            assert await it.lenses(uri) == []
            told = "\n".join(it.messages)
            assert "c++98" in told
            assert "debounceMs" in told
            assert "nonsense" in told
            it.settings = {"backend": "emulator"}
            it.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
            await until(lambda: it.published[uri][1] == [], "problems that go with the setting")
            assert len(await it.lenses(uri)) == 3

    run(scenario())


def test_a_worker_that_crashes_costs_one_message_and_the_server_goes_on(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("import os\ndef scale(x, a): os._exit(3)\n")
    text = SCALE.replace('"a * x"', '"reference.py:scale"')

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            await it.problems(uri)
            failed = await it.command("kernelmate.benchmark", uri=uri)
            assert failed["error"]["code"] == "reference"
            assert len(it.messages) == 1
            it.change(uri, SCALE)
            await it.problems(uri)
            document = await it.command("kernelmate.benchmark", uri=uri)
            assert document["verdicts"][0]["correct"] is True

    run(scenario())


def test_a_second_server_on_the_same_files_says_the_same(tmp_path: Path) -> None:
    async def once() -> str:
        async with editor(tmp_path, settings={"seed": 7}) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            return json.dumps(await it.command("kernelmate.benchmark", uri=uri))

    async def scenario() -> None:
        assert await once() == await once()

    run(scenario())


def test_requests_about_documents_that_are_not_open_are_answered_with_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = (tmp_path / "absent.cu").as_uri()
            assert await it.lenses(uri) == []
            assert await it.hover(uri, 3, 3) is None
            assert await it.actions(uri, 0) == []
            refused = await it.command("kernelmate.benchmark", uri=uri)
            assert "not open" in refused["error"]["message"]
            it.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
            assert await it.problems(it.open(tmp_path / "scale.cu", SCALE)) == []

    run(scenario())
