"""Responses of the language server to an editor: a test client drives the real process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import KERNEL_LINE, SCALE, STORE_LINE, editor, run, until

pytestmark = pytest.mark.exhaustive(share=0.4)

BROKEN = SCALE.replace("y[i] = a * x[i];", "y[i] = a * z[i];")
ENDLESS = (
    "template <int D, unsigned long long P> struct N { static __device__ int v() "
    "{ return N<D - 1, 2 * P>::v() + N<D - 1, 2 * P + 1>::v(); } };\n"
    "template <unsigned long long P> struct N<0, P> { static __device__ int v() { return P; } };\n"
    "__global__ void slow(int* x) { *x = N<50, 1>::v(); }\n"
)
RACY = """\
// /// kernelmate
// sizes = [{ n = 256 }]
// grid = 1
// block = 256
// reference = "x[::-1]"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void turn(const float* x, float* y, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[n - 1 - threadIdx.x];
}
"""


def place(text: str, word: str, occurrence: int = 0) -> tuple[int, int]:
    """Line and column, from 0, of a word in a text without characters beyond the first plane."""
    at = -1
    for _ in range(occurrence + 1):
        at = text.index(word, at + 1)
    before = text[:at]
    return before.count("\n"), at - (before.rfind("\n") + 1)


# ------------------------------------------------------------------------------------------------ problems


def test_a_file_without_mistakes_has_no_problems_and_a_lens_with_what_its_kernel_takes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            assert await it.problems(uri) == []
            figures, bench, optimize = await it.lenses(uri)
            assert "regs" in figures
            assert "% occupancy" in figures
            assert (bench, optimize) == ("Benchmark", "Optimize...")

    run(scenario())


def test_a_compile_error_stands_at_its_word_and_goes_when_it_is_corrected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", BROKEN)
            (problem,) = await it.problems(uri)
            assert problem.severity == types.DiagnosticSeverity.Error
            assert problem.source == "nvrtc"
            assert '"z" is undefined' in problem.message
            line, character = place(BROKEN, "z[i]")
            assert problem.range == types.Range(types.Position(line, character), types.Position(line, character + 1))
            it.change(uri, SCALE)
            assert await it.problems(uri) == []

    run(scenario())


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_places_are_counted_in_utf16_units_whatever_the_comments_hold(tmp_path: Path, ends: str) -> None:
    strange = BROKEN.replace("    if (i < n)", "    /* 𝛼β\u2028\f𝛾 */ if (i < n)").replace("\n", ends)
    text = "// größer als 𝔸\u2028 und\x0c weiter" + ends + strange

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            (problem,) = await it.problems(uri)
            line, _ = place(text.replace(ends, "\n"), "z[i]")
            written = text.split(ends)[line]
            units = len(written[: written.index("z[i]")].encode("utf-16-le")) // 2
            assert problem.range.start == types.Position(line, units)
            it.edit(uri, (line, units), (line, units + 1), "x")
            assert await it.problems(uri) == []

    run(scenario())


def test_while_typing_the_newest_text_wins_and_an_endless_compilation_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path, settings={"debounceMs": 10}) as it:
            uri = it.open(tmp_path / "scale.cu", ENDLESS)
            await asyncio.sleep(2)  # the compiler is at it, and will be for hours
            for end in range(20):
                it.change(uri, ENDLESS + f"// {end}\n")
                await asyncio.sleep(0.01)
            it.change(uri, BROKEN)
            (problem,) = await it.problems(uri)
            assert "undefined" in problem.message

    run(scenario())


def test_a_contract_mistake_is_told_at_its_place_and_a_misspelt_key_can_be_put_right(tmp_path: Path) -> None:
    text = SCALE.replace("// block = 256", "// blok = 256")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            (problem,) = await it.problems(uri)
            assert problem.range.start == types.Position(*place(text, "blok"))
            fix = next(one for one in await it.actions(uri, 3, [problem]) if one.kind == "quickfix")
            assert fix.title == "Change to block"
            assert fix.edit is not None
            assert it.after(fix.edit, uri) == SCALE

    run(scenario())


def test_a_mistake_in_a_header_is_told_at_the_kernel_with_the_way_to_the_header(tmp_path: Path) -> None:
    (tmp_path / "helper.cuh").write_text("#pragma once\n__device__ float twice(float v) { return 2 * w; }\n")
    text = '#include "helper.cuh"\n' + SCALE.replace("a * x[i]", "a * twice(x[i])")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            problem = next(one for one in await it.problems(uri) if "undefined" in one.message)
            assert problem.range.start.line == KERNEL_LINE + 1
            assert problem.related_information is not None
            location = problem.related_information[0].location
            assert location.uri == (tmp_path / "helper.cuh").as_uri()
            assert location.range.start.line == 1

    run(scenario())


def test_a_kernel_in_a_python_string_is_compiled_and_its_mistakes_stand_in_the_string(tmp_path: Path) -> None:
    text = (
        "import cupy\n\n"
        "code = r'''\n"
        'extern "C" __global__ void twice(float* y, int n) {\n'
        "    int i = threadIdx.x;\n"
        "    if (i < n) y[i] = 2 * q;\n"
        "}\n"
        "'''\n"
        "kernel = cupy.RawKernel(code, 'twice')\n"
    )

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "ops.py", text, "python")
            (problem,) = await it.problems(uri)
            assert problem.range.start == types.Position(5, text.split("\n")[5].index("q"))
            assert any("compile" in lens for lens in await it.lenses(uri))

    run(scenario())


def test_a_kernel_in_an_f_string_is_refused_with_what_to_do(tmp_path: Path) -> None:
    text = "import cupy\nn = 4\nkernel = cupy.RawKernel(f'__global__ void k(int* x) {{ *x = {n}; }}', 'k')\n"

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "ops.py", text, "python")
            (problem,) = await it.problems(uri)
            assert problem.severity == types.DiagnosticSeverity.Information
            assert "f-string" in problem.message
            assert "options=" in problem.message

    run(scenario())


def test_a_cell_with_the_magic_is_read_below_its_first_line(tmp_path: Path) -> None:
    cell_uri = "vscode-notebook-cell:" + str(tmp_path / "work.ipynb") + "#W0"
    text = "%%kernelmate\n" + BROKEN

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            notebook = types.NotebookDocument(
                (tmp_path / "work.ipynb").as_uri(), "jupyter-notebook", 1,
                [types.NotebookCell(types.NotebookCellKind.Code, cell_uri)],
            )  # fmt: skip
            item = types.TextDocumentItem(cell_uri, "python", 1, text)
            it.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, [item]))
            it.versions[cell_uri], it.texts[cell_uri] = 1, text
            (problem,) = await it.problems(cell_uri)
            assert problem.range.start == types.Position(*place(text, "z[i]"))
            line, character = place(text, "z[i]")
            span = types.Range(types.Position(line, character), types.Position(line, character + 1))
            change = types.NotebookDocumentCellContentChanges(
                types.VersionedTextDocumentIdentifier(2, cell_uri), [types.TextDocumentContentChangePartial(span, "x")]
            )
            it.client.notebook_document_did_change(
                types.DidChangeNotebookDocumentParams(
                    types.VersionedNotebookDocumentIdentifier(2, notebook.uri),
                    types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(text_content=[change])),
                )
            )
            assert await it.problems(cell_uri, 2) == []

    run(scenario())


def test_a_cell_in_the_document_that_jupyterlab_sends_is_read_where_it_stands_there(tmp_path: Path) -> None:
    text = 'import numpy\nget_ipython().run_cell_magic("kernelmate", "scale", """' + BROKEN + '""")\n'

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "work.ipynb", text, "python")
            (problem,) = await it.problems(uri)
            assert problem.range.start == types.Position(*place(text, "z[i]"))

    run(scenario())


def test_jupyter_lsp_finds_the_server_by_its_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    name = project["project"]["entry-points"]["jupyter_lsp_spec_v1"]["kernelmate"]
    entry = EntryPoint("kernelmate", name, "jupyter_lsp_spec_v1").load()(None)["kernelmate"]
    assert entry["version"] == 2
    assert entry["argv"][1:] == ["-P", "-m", "kernelmate_lsp"], "files of the current folder are no modules"


# ------------------------------------------------------------------------------------- what is known of a kernel


def test_a_hover_on_the_kernels_name_tells_what_it_takes_on_several_gpus(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path, settings={"otherTargets": ["L4", "A100 80GB SXM"]}) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            shown = await it.hover(uri, *place(SCALE, "scale(const"))
            assert shown is not None
            assert "H100 SXM (sm\\_90)" in shown
            assert "L4 (sm\\_89)" in shown
            assert "A100 80GB SXM (sm\\_80)" in shown
            assert "limited by" in shown
            assert await it.hover(uri, STORE_LINE, 4) is None

    run(scenario())


def test_a_hover_on_a_shared_array_tells_its_bytes_and_its_banks(tmp_path: Path) -> None:
    text = (
        "__global__ void __launch_bounds__(256, 2) k(float* y) {\n"
        "    __shared__ float tile[32][32];\n"
        "    tile[threadIdx.x][0] = y[threadIdx.x];\n"
        "    __syncthreads();\n"
        "    y[threadIdx.x] = tile[0][threadIdx.x];\n"
        "}\n"
    )

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "k.cu", text)
            await it.problems(uri)
            shown = await it.hover(uri, *place(text, "tile"))
            assert shown is not None
            assert "4,096 B of static shared memory" in shown
            assert "same bank" in shown
            bound = await it.hover(uri, *place(text, "__launch_bounds__"))
            assert bound is not None
            assert "at most 256 threads per block, at least 2 blocks per SM" in bound

    run(scenario())


def test_a_benchmark_is_shown_in_lens_hover_and_hints_and_marked_once_the_text_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            assert await it.hints(uri) == []
            document = await it.command("kernelmate.benchmark", uri=uri, kernel="scale")
            (verdict,) = document["verdicts"]
            assert verdict["correct"] is True
            assert verdict["timing"]["kind"] == "predicted"
            assert "predicted just now" in (await it.lenses(uri))[0]
            (hint,) = await it.hints(uri)
            assert hint.position.line == STORE_LINE
            assert hint.label == "load 4 sectors/request · store 4 sectors/request"
            assert "predicted" in (await it.hover(uri, *place(SCALE, "scale(const")) or "")

            it.change(uri, "// one line more\n" + SCALE)
            await it.problems(uri)
            assert "before the last change" in (await it.lenses(uri))[0]
            (moved,) = await it.hints(uri)
            assert moved.position.line == STORE_LINE + 1
            assert str(moved.label).startswith("(stale)")

            it.change(uri, SCALE)
            await it.problems(uri)
            assert "before the last change" not in (await it.lenses(uri))[0]

    run(scenario())


def test_findings_of_a_benchmark_are_problems_until_the_text_changes_and_then_hints(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "turn.cu", RACY)
            assert await it.problems(uri) == []
            await it.command("kernelmate.benchmark", uri=uri)
            race = next(one for one in it.published[uri][1] if one.code == "shared-race")
            assert race.severity == types.DiagnosticSeverity.Error
            assert race.source == "kernelmate benchmark"
            it.change(uri, RACY.replace("int n)", "int n )"))
            stale = next(one for one in await it.problems(uri) if one.code == "shared-race")
            assert stale.severity == types.DiagnosticSeverity.Hint
            assert stale.message.startswith("Found by the benchmark before the last change")

    run(scenario())


# -------------------------------------------------------------------------------------------------- searching


def test_a_prompt_leads_to_an_edit_that_must_be_confirmed_and_says_what_the_verdict_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            text = (Path(__file__).parents[2] / "examples" / "softmax.cu").read_text()
            (tmp_path / "reference.py").write_text(
                (Path(__file__).parents[2] / "examples" / "reference.py").read_text()
            )
            uri = it.open(tmp_path / "softmax.cu", text)
            await it.problems(uri)
            document = await it.command(
                "kernelmate.optimize", uri=uri, kernel="softmax", prompt="reduce memory usage", author="recipes"
            )
            assert document["objective"]["metric"] == "shared_bytes"
            best = document["candidates"][document["best"]]
            (asked,) = it.applied
            (annotation,) = (asked.edit.change_annotations or {}).values()
            assert annotation.needs_confirmation
            assert best["author"] in annotation.label
            assert "right at" in (annotation.description or "")
            changed = it.after(asked.edit, uri)
            assert best["source"] in changed
            assert [one["kind"] for one in it.progress][:1] == ["begin"]
            assert [one["kind"] for one in it.progress][-1:] == ["end"]
            # What is known, and its charts, are the search's; the benchmark of its baseline is no newer.
            known = await it.command("kernelmate.results", uri=uri, kernel="softmax")
            assert known["search"]["at"] >= known["benchmark"]["at"]
            drawn = await it.command("kernelmate.figures", uri=uri, kernel="softmax")
            assert best["author"].removeprefix("recipe:") in json.dumps(drawn["figures"]["Correctness per size"])
            # The candidates can be taken from the menu too, each with its edit made when it is chosen.
            offered = [one for one in await it.actions(uri, 20) if one.title.startswith("Take candidate 1")]
            (first,) = offered
            assert first.edit is None
            resolved = await it.client.code_action_resolve_async(first)
            assert resolved.edit is not None
            assert it.after(resolved.edit, uri) == changed
            # Once the text is another one, they cannot.
            it.change(uri, text.replace("float", "float ", 1))
            await it.problems(uri)
            assert not [one for one in await it.actions(uri, 20) if one.title.startswith("Take candidate")]
            refused = await it.command("kernelmate.apply", uri=uri, kernel="softmax", candidate=0)
            assert refused["error"]["code"] == "usage"

    run(scenario())


def test_a_rewrite_is_judged_when_it_is_chosen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            kinds: list[str] = []
            for _ in range(200):
                offered = await it.actions(uri, STORE_LINE)
                kinds = [str(one.kind) for one in offered]
                if "refactor.rewrite.kernelmate.restrict-pointers" in kinds:
                    break
                await asyncio.sleep(0.05)
            chosen = offered[kinds.index("refactor.rewrite.kernelmate.restrict-pointers")]
            assert chosen.edit is None
            resolved = await it.client.code_action_resolve_async(chosen)
            assert resolved.edit is not None
            assert "__restrict__" in it.after(resolved.edit, uri)
            (annotation,) = (resolved.edit.change_annotations or {}).values()
            assert "right at" in (annotation.description or "")

    run(scenario())


def test_a_search_can_be_cancelled_and_the_next_one_works(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            searching = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            token = await asyncio.wait_for(it.begun.get(), 60)
            await until(lambda: any(one["kind"] == "report" for one in it.progress), "a report of progress")
            it.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
            assert await asyncio.wait_for(searching, 60) is None
            document = await it.command("kernelmate.benchmark", uri=uri)
            assert document["verdicts"][0]["correct"] is True

    run(scenario())


def test_while_a_benchmark_runs_other_requests_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            running = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            answered = 0
            while not running.done():
                assert await it.lenses(uri)
                answered += 1
                await asyncio.sleep(0.02)
            assert answered > 5
            assert (await running)["baseline"]["correct"] is True

    run(scenario())


def test_a_kernel_is_compared_with_the_text_that_was_pinned_and_with_the_saved_one(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(SCALE)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            missing = await it.command("kernelmate.compare", uri=uri, baseline="pinned")
            assert "No version" in missing["error"]["message"]
            await it.command("kernelmate.pin", uri=uri)
            it.change(uri, SCALE.replace("a * x[i]", "a * x[i] + 1"))
            await it.problems(uri)
            document = await it.command("kernelmate.compare", uri=uri)
            assert document["of"] == "pinned"
            assert document["baseline"][0]["correct"] is True
            assert document["verdicts"][0]["correct"] is False
            assert "WRONG" in (await it.lenses(uri))[0]
            drawn = await it.command("kernelmate.figures", uri=uri)
            assert "Correctness per size" in drawn["figures"]
            view = (await it.command("kernelmate.view", uri=uri))["html"]
            assert "wrong on" in view
            assert "baseline (pinned)" in view
            assert "y[i] = a * x[i] + 1" in view, "the line that stores the wrong values"
            assert set(drawn["templates"]) == {"light", "dark"}
            saved = await it.command("kernelmate.compare", uri=uri, baseline="saved")
            assert saved["of"] == "saved"
            assert saved["baseline"][0]["binary"] == document["baseline"][0]["binary"]

    run(scenario())


def test_a_kernel_is_compared_with_the_committed_text_and_git_runs_nothing_of_the_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "scale.cu").write_text(SCALE)
    git("add", ".")
    git("commit", "-qm", "first")
    marker = tmp_path / "was_run"
    git("config", "core.fsmonitor", f"touch {marker}; false")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE.replace("a * x[i]", "x[i] * a"))
            await it.problems(uri)
            document = await it.command("kernelmate.compare", uri=uri, baseline="HEAD")
            assert document["of"] == "HEAD"
            assert document["verdicts"][0]["correct"] is True
            other = it.open(tmp_path / "new.cu", SCALE)
            await it.problems(other)
            absent = await it.command("kernelmate.compare", uri=other, baseline="HEAD")
            assert "not in the last commit" in absent["error"]["message"]
            assert not marker.exists()

    run(scenario())


def test_a_kernel_that_does_not_compile_is_repaired_by_the_quick_fix(tmp_path: Path) -> None:
    text = SCALE.replace("blockDim.x + threadIdx.x;", "blockDim.x + threadIdx.x")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            problems = await it.problems(uri)
            fixes = [
                one for one in await it.actions(uri, STORE_LINE, problems) if one.title.startswith("KernelMate: Fix")
            ]
            (offered,) = fixes
            assert offered.kind == "quickfix"
            assert offered.command is not None
            assert offered.command.arguments is not None
            document = await it.command(offered.command.command, **offered.command.arguments[0])
            assert document["candidates"][document["best"]]["verdict"]["correct"] is True
            (asked,) = it.applied
            it.change(uri, it.after(asked.edit, uri))
            assert await it.problems(uri) == []

    run(scenario())


def test_saving_judges_what_changed_where_the_settings_ask_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path, settings={"benchmarkOnSave": True}) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
            it.client.text_document_did_save(saved)
            await until(lambda: any(one["kind"] == "end" for one in it.progress), "the benchmark's end")
            assert "predicted" in (await it.lenses(uri))[0]
            before = len(it.progress)
            it.client.text_document_did_save(saved)
            await it.command("kernelmate.results", uri=uri)
            await asyncio.sleep(0.3)
            assert len(it.progress) == before

    run(scenario())


@pytest.mark.parametrize("on", [False, True])
def test_inline_completion_is_off_until_it_is_asked_for_and_silent_without_a_model(tmp_path: Path, on: bool) -> None:
    async def scenario() -> None:
        settings = {"inlineCompletion": on, "modelsDir": str(tmp_path / "models")}
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            assert not await it.inline(uri, STORE_LINE, 4)
            assert it.messages == []

    run(scenario())


def test_inline_completion_asks_a_server_on_this_machine_for_what_stands_in_the_gap(tmp_path: Path) -> None:
    heard: list[dict[str, object]] = []

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            text = json.dumps({"completion": "float v = x[i];"})
            chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    served = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=served.serve_forever, daemon=True).start()

    async def scenario() -> None:
        settings = {"inlineCompletion": True, "modelUrl": f"http://127.0.0.1:{served.server_port}/v1"}
        async with editor(tmp_path, settings=settings) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            (found,) = await it.inline(uri, STORE_LINE, 4)
            assert found.insert_text == "float v = x[i];"
            assert "int i = blockIdx.x" in json.dumps(heard[0])

    try:
        run(scenario())
    finally:
        served.shutdown()


# ----------------------------------------------------------------------------------------- contract, structure


def test_a_contract_can_be_added_and_what_is_added_is_a_contract(tmp_path: Path) -> None:
    bare = SCALE.partition("// ///\n")[2]

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", bare)
            await it.problems(uri)
            (add,) = [one for one in await it.actions(uri, 0) if one.kind == "refactor.rewrite.kernelmate.addContract"]
            assert add.edit is not None
            it.change(uri, it.after(add.edit, uri))
            assert it.texts[uri].startswith("// /// kernelmate\n")
            assert await it.problems(uri) == []

    run(scenario())


def test_what_a_kernel_assumes_about_its_sizes_can_be_required(tmp_path: Path) -> None:
    text = SCALE.replace("1000", "1024").replace("if (i < n)", "if (i < n / 8 * 8)")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            await it.problems(uri)
            assert not [one for one in await it.actions(uri, KERNEL_LINE) if "require" in str(one.kind)]
            await it.command("kernelmate.benchmark", uri=uri, kernel="scale")
            (add,) = [
                one for one in await it.actions(uri, KERNEL_LINE) if one.kind == "refactor.rewrite.kernelmate.require"
            ]
            assert add.edit is not None
            it.change(uri, it.after(add.edit, uri))
            assert '// require = ["n % 8 == 0"]\n' in it.texts[uri]
            await it.problems(uri)
            assert not [one for one in await it.actions(uri, KERNEL_LINE) if "require" in str(one.kind)]

    run(scenario())


def test_what_a_kernel_without_a_contract_assumes_is_written_with_the_inferred_one(tmp_path: Path) -> None:
    text = """__global__ void copy4(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i < n) ((float4*)y)[i] = ((const float4*)x)[i];
}
int main() {
  const int n = 1024;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMemset(x, 0, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  copy4<<<(n / 4 + 127) / 128, 128>>>(x, y, n);
}
"""

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "copy4.cu", text)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri, kernel="copy4")
            (add,) = [one for one in await it.actions(uri, 0) if one.kind == "refactor.rewrite.kernelmate.require"]
            assert add.title == "Write a contract above copy4 that requires n % 4 == 0"
            assert add.edit is not None
            it.change(uri, it.after(add.edit, uri))
            assert '// require = ["n % 4 == 0"]  # inferred: its verdict\n' in it.texts[uri]
            assert "// sizes = [{ n = 1024 }]  # inferred: line 6\n" in it.texts[uri]

    run(scenario())


def test_symbols_and_folds_are_those_of_the_kernels_and_their_contracts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            document = types.TextDocumentIdentifier(uri)
            (symbol,) = await it.client.text_document_document_symbol_async(types.DocumentSymbolParams(document)) or []
            assert symbol.name == "scale"
            assert symbol.selection_range.start == types.Position(*place(SCALE, "scale(const"))
            folds = await it.client.text_document_folding_range_async(types.FoldingRangeParams(document)) or []
            assert [(one.start_line, one.end_line) for one in folds] == [(0, 10), (11, 14)]

    run(scenario())


@pytest.mark.parametrize(
    ("line", "column", "wanted", "unwanted"),
    [
        ("// ", 3, {"shared", "tolerance", "require"}, {"block", "float32"}),
        ('// shared = "', 13, {"n", "block"}, {"tolerance"}),
        ("// ", 3, {"weights", "slowdown"}, {"align 16"}),
        ('// [args]\n// x = "in float32[n] "', 22, {"align 16"}, {"fixed", "float32"}),
        ('// [args]\n// a = "float32 = 2 "', 21, {"fixed"}, {"align 16", "float32"}),
        ('// [args]\n// y = "out float32[n] "', 23, {"align 16", "unordered", "where"}, {"fixed"}),
        ('// [args]\n// y = "', 8, {"scratch", "inout", "float32"}, {"unordered"}),
        ("// [symbols]\n// ", 3, {"taps"}, {"shared", "x"}),
    ],
)
def test_completion_in_a_contract_knows_its_keys_and_sizes(
    tmp_path: Path, line: str, column: int, wanted: set[str], unwanted: set[str]
) -> None:
    text = SCALE.replace("// block = 256\n", f"// block = 256\n{line}\n") + "__constant__ float taps[9];\n"

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            found = await it.client.text_document_completion_async(
                types.CompletionParams(types.TextDocumentIdentifier(uri), types.Position(4 + line.count("\n"), column))
            )
            labels = {one.label for one in found or []}
            assert wanted <= labels
            assert not unwanted & labels
            inside = types.Position(place(text, "int i")[0], 8)
            nothing = await it.client.text_document_completion_async(
                types.CompletionParams(types.TextDocumentIdentifier(uri), inside)
            )
            assert not nothing

    run(scenario())


# ------------------------------------------------------------------------------------------------ hard times


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
