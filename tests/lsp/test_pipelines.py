"""Pipelines in the editor: diagnostics at their stages, completion, hover, and judging by the lens above the block."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import editor, place, run

pytestmark = pytest.mark.exhaustive(share=0.4)

TEXT = """// /// kernelmate
// pipeline = "twice"
// sizes = [{ n = 300 }, { n = 5 }]
// reference = "4 * x"
// [args]
// x = "in float32[n]"
// once = "scratch float32[n]"
// y = "out float32[n]"
// [[stages]]
// kernel = "twofold"
// grid = "cdiv(n, block)"
// block = 128
// args = { from = "x", to = "once" }
// [[stages]]
// kernel = "twofold"
// grid = "cdiv(n, block)"
// block = 128
// args = { from = "once", to = "y" }
// ///

__global__ void twofold(const float* from, float* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = 2.0f * from[i];
}
"""


def test_a_mistake_in_a_stage_is_reported_at_its_line(tmp_path: Path) -> None:
    text = TEXT.replace('"once", to', '"ones", to')

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "twice.cu", text)
            (found,) = await it.problems(uri)
            assert "'ones', which from takes, is not an array of the pipeline." in found.message
            assert found.range.start.line == place(text, '"ones"')[0]
            it.change(uri, TEXT)
            assert await it.problems(uri) == []

    run(scenario())


@pytest.mark.parametrize(
    ("word", "line", "wanted", "unwanted"),
    [
        ("// [args]", "// ", {"weights", "require"}, {"grid", "kernel", "pipeline"}),
        ("// block = 128", "// ", {"shared", "reference", "args", "stages"}, {"grid", "sizes"}),
        ("// block = 128", '// kernel = "', {"twofold"}, {"once"}),
        ("// block = 128", '// shared = "', {"n", "block"}, {"once"}),
        ("// block = 128", '// args = { from = "', {"x", "once", "y"}, {"n"}),
    ],
)
def test_completion_knows_the_keys_of_pipelines_and_stages(
    tmp_path: Path, word: str, line: str, wanted: set[str], unwanted: set[str]
) -> None:
    after = word.startswith("// block")
    text = TEXT.replace(word, f"{word}\n{line}" if after else f"{line}\n{word}", 1)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "twice.cu", text)
            at = types.Position(place(text, word)[0] + (1 if after else -1), len(line))
            found = await it.client.text_document_completion_async(
                types.CompletionParams(types.TextDocumentIdentifier(uri), at)
            )
            labels = {one.label for one in found or []}
            assert wanted <= labels
            assert not unwanted & labels

    run(scenario())


def test_a_pipeline_is_judged_from_the_lens_above_its_block(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "twice.cu", TEXT)
            assert await it.problems(uri) == []
            shown = await it.hover(uri, *place(TEXT, "twice"))
            assert shown is not None
            assert "**twice**" in shown
            assert "| twofold \\#2 | 3 x 128 |" in shown
            assert sum(title == "Benchmark" for title in await it.lenses(uri)) == 2
            judged = await it.command("kernelmate.benchmark", uri=uri, kernel="0:twice")
            assert judged["verdicts"][0]["correct"] is True
            assert [one["name"] for one in judged["verdicts"][0]["stages"]] == ["twofold", "twofold #2"]
            assert any("us" in title for title in await it.lenses(uri))

    run(scenario())
