"""Hovers, lenses and hints with a kernel's figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from kernelmate.records import LineCounters
from kernelmate_lsp.features.inlay_hints import line_phrase
from tests.lsp.client import BROKEN, SCALE, STORE_LINE, editor, place, run

pytestmark = pytest.mark.exhaustive(share=0.4)

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


LOOP = SCALE.replace(
    "    if (i < n) y[i] = a * x[i];\n",
    "    float sum = 0.0f;\n"
    "    for (int k = 0; k < n; k += 1) {\n"
    "        sum += a;\n"
    "        y[i % n] = sum;\n"
    "    }\n"
    "    int unused;\n",
)


def test_a_hover_on_a_variable_tells_where_it_is_live_and_how_many_registers_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            for _ in range(20):  # the disassembler may need longer than a hover waits
                shown = await it.hover(uri, *place(SCALE, "i < n"))
                assert shown is not None
                if "peak" in shown:
                    break
            assert f"**i**: `int`, live from line {STORE_LINE} to line {STORE_LINE + 1}." in shown
            assert "registers are live at the instructions of this line. The peak is" in shown
            assert "are allocated per thread" in shown

            it.change(uri, LOOP)
            await it.problems(uri)
            # A value that a loop reads again is kept until the loop ends.
            ends = LOOP[: LOOP.index("    }\n    int unused")].count("\n") + 1
            assert f"to line {ends}." in (await it.hover(uri, *place(LOOP, "sum += a")) or "")
            assert "`int`, never used." in (await it.hover(uri, *place(LOOP, "unused")) or "")

            it.change(uri, BROKEN)
            await it.problems(uri)
            broken = await it.hover(uri, *place(BROKEN, "i < n"))
            assert broken is not None
            assert "peak" not in broken, "there is no code"

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
            assert "predicted just now" in (await it.lenses(uri))[-1]
            (hint,) = await it.hints(uri)
            assert hint.position.line == STORE_LINE
            assert hint.label == "load 4 sectors/request · store 4 sectors/request"
            assert "predicted" in (await it.hover(uri, *place(SCALE, "scale(const")) or "")

            it.change(uri, "// one line more\n" + SCALE)
            await it.problems(uri)
            assert "before the last change" in (await it.lenses(uri))[-1]
            (moved,) = await it.hints(uri)
            assert moved.position.line == STORE_LINE + 1
            assert str(moved.label).startswith("(stale)")

            it.change(uri, SCALE)
            await it.problems(uri)
            assert "before the last change" not in (await it.lenses(uri))[-1]

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


def test_one_sector_is_no_plural() -> None:
    line = LineCounters(28, global_store_sectors=64, global_store_requests=64)
    assert line_phrase(line) == "store 1 sector/request"
