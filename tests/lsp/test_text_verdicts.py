"""Verdicts belong to the text that was judged: accepted candidates, reverted ones, and kernels without proof of correctness."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from kernelmate_lsp.features.lenses import BARS
from tests.lsp.client import ROOT, SCALE, STORE_LINE, editor, run

pytestmark = pytest.mark.exhaustive(share=0.4)

WITHOUT_REFERENCE = SCALE.replace('// reference = "a * x"\n', "")
WITHOUT_CONTRACT = SCALE.split("// ///\n")[1]
_EXAMPLE = (ROOT / "extension/src/example.ts").read_text()
WASTEFUL = _EXAMPLE.split("const EXAMPLE = `\\\n")[1].split("`;")[0]
"""The walkthrough's kernel, which takes more shared memory than it needs."""


@pytest.mark.parametrize(
    ("text", "told", "untold"),
    [
        (SCALE, (), ("NOT VERIFIED", "guessed")),
        (WITHOUT_REFERENCE, ("NOT VERIFIED: no reference",), ("guessed",)),
        (WITHOUT_CONTRACT, ("NOT VERIFIED: no reference, guessed contract",), ()),
    ],
)
def test_a_benchmark_that_proves_nothing_says_so_in_the_lens(
    tmp_path: Path, text: str, told: tuple[str, ...], untold: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            lens = (await it.lenses(uri))[-1]
            assert "predicted just now" in lens
            assert all(one in lens for one in told), lens
            assert not any(one in lens for one in untold), lens

    run(scenario())


def test_an_accepted_candidate_has_its_own_verdict_and_an_undone_one_the_baselines(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "sum.cu", WASTEFUL)
            await it.problems(uri)
            found = await it.command("kernelmate.optimize", uri=uri, prompt="reduce memory usage", author="recipes")
            assert found["best"] is not None
            before = (await it.lenses(uri))[-1]
            accepted = it.after(it.applied[-1].edit, uri)
            it.change(uri, accepted)
            await it.problems(uri)
            after = (await it.lenses(uri))[-1]
            wanted = found["candidates"][found["best"]]["verdict"]["timing"]["median_us"]
            assert "before the last change" not in after
            assert f"{wanted:.3g}"[:3] in after, (wanted, after)
            results = await it.command("kernelmate.results", uri=uri)
            assert results["search"]["stale"] is False
            assert results["search"]["taken"] == found["best"]
            view = await it.command("kernelmate.view", uri=uri)
            assert "Accepted" in view["html"]
            assert view["html"].count("<svg") == 6, "three for a wide page, three for a narrow one"
            assert ' style="' not in view["html"], "which the page's policy forbids"
            assert ".kernelmate .verdict" in view["style"]
            assert results["benchmark"]["stale"] is False
            hints = await it.hints(uri)
            assert hints
            assert not any("stale" in str(hint.label) for hint in hints)

            it.change(uri, WASTEFUL)
            await it.problems(uri)
            assert (await it.lenses(uri))[-1] == before
            assert (await it.command("kernelmate.results", uri=uri))["search"]["taken"] is None

            it.change(uri, accepted.replace("// ///\n__global__", "// ///\n// another text\n__global__"))
            assert "before the last change" in (await it.lenses(uri))[-1], "at the first key"

    run(scenario())


def test_a_result_of_an_earlier_text_shows_that_texts_lines_and_leads_to_the_present_ones(tmp_path: Path) -> None:
    wrong = SCALE.replace("y[i] = a * x[i];", "y[i] = a * x[i] + 1.0f;")
    store = 1 + STORE_LINE

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", wrong)
            await it.problems(uri)
            assert (await it.command("kernelmate.view", uri=uri))["judged"] is None
            await it.command("kernelmate.benchmark", uri=uri)
            page = await it.command("kernelmate.view", uri=uri)
            assert page["judged"] == {
                "ago": "just now",
                "of": "benchmark",
                "good": False,
                "stale": False,
                "taken": None,
                "repairable": True,
            }
            assert f'data-line="{store}"' in page["html"]

            it.change(uri, "// one line more\n" + wrong)
            moved = await it.command("kernelmate.view", uri=uri)
            assert moved["judged"]["stale"] is True
            assert f"{store:>5} |     if (i &lt; n) y[i] = a * x[i] + 1.0f;" in moved["html"], "the judged text's line"
            assert f'data-line="{store + 1}"' in moved["html"], "the same line in the present text"

            it.change(uri, wrong.replace("+ 1.0f", "+ 2.0f"))
            changed = await it.command("kernelmate.view", uri=uri)
            assert changed["judged"]["stale"] is True
            assert "+ 1.0f" in changed["html"]
            assert "data-line" not in changed["html"], "the line is no longer there"

    run(scenario())


def test_a_repair_that_is_not_found_ends_by_its_limit(tmp_path: Path) -> None:
    broken = SCALE.replace("y[i] = a * x[i];", "y[i] = a * x[i] + n;")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", broken)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            found = await it.command("kernelmate.fix", uri=uri, budgetS=0.001)
            assert found["best"] is None
            assert any("time" in note or "limit" in note or "budget" in note for note in found["notes"]), found["notes"]

    run(scenario())


TRANSPOSE = """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 64 }]
// grid = ["cols // 32", "rows // 32"]
// block = [32, 32]
// reference = "x.T"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void turn(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[32][32];
    __shared__ float padded[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
    __syncthreads();
    padded[threadIdx.x][threadIdx.y] = tile[threadIdx.x][threadIdx.y];
    __syncthreads();
    y[c * rows + r] = padded[threadIdx.x][threadIdx.y];
}
"""


def test_a_hover_says_how_lanes_touch_memory_what_banks_do_and_what_a_barrier_costs(tmp_path: Path) -> None:
    lines = TRANSPOSE.split("\n")

    def place(word: str, line: str) -> tuple[int, int]:
        row = next(number for number, text in enumerate(lines) if line in text)
        return row, lines[row].index(word)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "turn.cu", TRANSPOSE)
            await it.problems(uri)
            assert await it.hover(uri, *place("x[r", "x[r")) is None, "nothing was counted yet"
            await it.command("kernelmate.benchmark", uri=uri)
            load = await it.hover(uri, *place("x[r", "x[r")) or ""
            assert "4 sectors per request" in load
            assert "coalesced" in load
            assert "0-7  | 8-15 | 16-23 | 24-31" in load
            store = await it.hover(uri, *place("y[c", "y[c")) or ""
            assert "32 sectors per request" in store
            assert "scattered" in store
            assert "12.5% of the bytes moved are used" in store
            banks = await it.hover(uri, *place("tile[threadIdx.x]", "= tile")) or ""
            assert "16.5-way bank conflicts" in banks, "of the load and of the store to the padded one together"
            assert "in the same bank" in banks
            declared = await it.hover(uri, *place("padded", "__shared__ float padded")) or ""
            assert "rows begin in banks 0, 1, 2, 3" in declared
            barrier = await it.hover(uri, *place("__syncthreads", "__syncthreads")) or ""
            assert "4 times per launch" in barrier
            assert "of the launch's cost" in barrier
            assert "sectors" not in (await it.hover(uri, *place("cols + c", "x[r")) or ""), "it is no pointer"

            it.change(uri, TRANSPOSE.replace("// ///\n__global__", "// ///\n// moved\n__global__"))
            await it.problems(uri)
            row, column = place("y[c", "y[c")
            assert "before the last change" in (await it.hover(uri, row + 1, column) or "")

    run(scenario())


def test_a_search_that_finds_nothing_names_the_limiter_and_what_came_nearest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            found = await it.command("kernelmate.optimize", uri=uri, prompt="make it faster", author="recipes")
            assert found["best"] is None
            assert it.messages[-1] == found["nothing"]
            assert "scale is bound by" in found["nothing"]
            assert "token" not in found["nothing"]

    run(scenario())


def test_the_lens_draws_the_last_times_and_compares_with_the_pinned_version(tmp_path: Path) -> None:
    slower = SCALE.replace("y[i] = a * x[i];", "{ float v = x[i]; for (int k = 0; k < 512; ++k) v = v * 0.5f + 1.0f; y[i] = v > 1e9f ? v : a * x[i]; }")  # fmt: skip

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", slower)
            await it.problems(uri)
            await it.command("kernelmate.pin", uri=uri)
            await it.command("kernelmate.benchmark", uri=uri)
            assert "pinned" not in (await it.lenses(uri))[-1]
            assert not set(BARS) & set((await it.lenses(uri))[-1])
            it.change(uri, SCALE)
            await it.problems(uri)
            assert "pinned" not in (await it.lenses(uri))[-1], "the present text was not judged"
            await it.command("kernelmate.benchmark", uri=uri)
            lens = (await it.lenses(uri))[-1]
            assert 0 < lens.index("predicted") < lens.index("the pinned version's speed") < lens.index("regs")
            assert len([one for one in lens if one in BARS]) == 2
            for _ in range(8):
                await it.command("kernelmate.benchmark", uri=uri)
            assert len([one for one in (await it.lenses(uri))[-1] if one in BARS]) == 10
            await it.command("kernelmate.benchmark", uri=uri)
            assert not set(BARS) & set((await it.lenses(uri))[-1]), "bars of one height tell nothing"
            it.change(uri, SCALE.replace("a * x[i]", "b * x[i]"))
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            assert (await it.lenses(uri))[-1].count("does not compile") == 1

    run(scenario())


def test_a_document_that_is_opened_again_has_its_verdicts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            before = (await it.lenses(uri))[-1]
            assert "predicted just now" in before
            it.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
            assert await it.lenses(uri) == []
            changed = SCALE.replace("a * x[i]", "a * x[i] + 0.0f")
            it.open(tmp_path / "scale.cu", changed)
            await it.problems(uri)
            assert "before the last change" in (await it.lenses(uri))[-1]
            it.change(uri, SCALE)
            await it.problems(uri)
            assert (await it.lenses(uri))[-1] == before

    run(scenario())
