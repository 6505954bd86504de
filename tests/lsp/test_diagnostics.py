"""Problems that the language server reports in files, strings and cells."""

from __future__ import annotations

import asyncio
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import BROKEN, KERNEL_LINE, SCALE, editor, place, run

pytestmark = pytest.mark.exhaustive(share=0.4)

ENDLESS = (
    "template <int D, unsigned long long P> struct N { static __device__ int v() "
    "{ return N<D - 1, 2 * P>::v() + N<D - 1, 2 * P + 1>::v(); } };\n"
    "template <unsigned long long P> struct N<0, P> { static __device__ int v() { return P; } };\n"
    "__global__ void slow(int* x) { *x = N<50, 1>::v(); }\n"
)


def test_a_file_without_mistakes_has_no_problems_and_a_lens_with_what_its_kernel_takes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            assert await it.problems(uri) == []
            bench, optimize, figures = await it.lenses(uri)
            assert "regs" in figures
            assert "% occupancy" in figures
            assert (bench, optimize) == ("Benchmark", "Optimize...")

    run(scenario())


def test_a_parameter_list_that_is_not_closed_is_a_problem_beside_other_kernels(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            for number, text in enumerate(
                ("__global__ void k(float* x { }\n", f"__global__ void k(float* x;\n{SCALE}")
            ):
                (problem,) = await it.problems(it.open(tmp_path / f"k{number}.cu", text))
                assert (problem.code, problem.range.start.line) == ("unclosed-parameters", 0)
                assert "is not closed" in problem.message

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


def test_errors_of_the_compiler_are_left_to_another_server_where_the_settings_say_so(tmp_path: Path) -> None:
    broken = SCALE.replace("a * x[i]", "a * z[i]")

    async def scenario() -> None:
        for wanted, codes in ((True, ["nvrtc"]), (False, [])):
            async with editor(tmp_path, settings={"compilerProblems": wanted}) as it:
                problems = await it.problems(it.open(tmp_path / "scale.cu", broken))
                assert [one.source for one in problems] == codes
                mistaken = await it.problems(it.open(tmp_path / "other.cu", SCALE.replace("grid =", "grd =")))
                assert mistaken, "mistakes of a contract remain"

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
