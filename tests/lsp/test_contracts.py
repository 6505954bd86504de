"""Contracts in the editor: adding, requiring, completing; symbols and folds."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import KERNEL_LINE, SCALE, editor, place, run

pytestmark = pytest.mark.exhaustive(share=0.4)


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
        ('// [args]\n// t = "in float32[n] texture "', 30, {"filter", "normalized", "address"}, {"texture"}),
        ('// [args]\n// t = "out float32[n, 4] surface channels "', 43, {"layered"}, {"filter", "channels"}),
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
