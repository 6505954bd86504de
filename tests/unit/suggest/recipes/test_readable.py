"""Rewrites as they are offered to a person: names, heads, braces and parentheses, and reasons that the text bears out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelmate.records import Candidate, Kernel
from kernelmate.source import apply_edits, contract_for, find_kernels, text_unit
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes import (
    divide,
    single_pass_moments,
    tile_matmul,
    tile_permute,
    vectorize,
    warp_per_row,
    warp_reduce,
)
from kernelmate.suggest.recipes.base import Recipe
from kernelmate.suggest.recipes.readable import readable

Ask = Callable[..., SuggestRequest]


def contract(sizes: str, args: str, grid: str, block: str = "256") -> str:
    lines = [f"sizes = [{{ {sizes} }}]", f"grid = {grid}", f"block = {block}", "[args]"]
    lines += [f'{one.partition(": ")[0]} = "{one.partition(": ")[2]}"' for one in args.split("; ")]
    return "".join(f"// {line}\n" for line in ["/// kernelmate", *lines, "///"])


MATRIX = "x: in float32[rows, cols]; y: out float32[{}]; rows: int32; cols: int32"
COLUMNS = (
    contract("rows = 1024, cols = 512", MATRIX.format("cols"), '"cdiv(cols, block)"')
    + """
__global__ void k(const float* x, float* y, int rows, int cols)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols)
    {
        return;
    }
    float acc = 0.0f;
    for (int row = 0; row < rows; ++row)
    {
        acc += x[row * cols + col];
    }
    y[col] = acc;
}
"""
)
ROWS = COLUMNS.replace("x[row * cols + col]", "x[col * rows + row]")
MOMENTS = (
    contract("rows = 64, cols = 512", MATRIX.format("rows"), '"rows"')
    + """
__global__ void k(const float* x, float* y, int rows, int cols) {
  float meanOf = 0.0f;
  for (int c = 0; c < cols; ++c) meanOf += x[blockIdx.x * cols + c];
  meanOf /= cols;
  float squaresOf = 0.0f;
  for (int c = 0; c < cols; ++c) squaresOf += (x[blockIdx.x * cols + c] - meanOf) * (x[blockIdx.x * cols + c] - meanOf);
  y[blockIdx.x] = squaresOf / cols;
}
"""
)
PERMUTED = contract("n = 4, c = 64, h = 32, w = 32", "x: in float32[n, c, h, w]; y: out float32[n, h, w, c]; n: int32; c: int32; h: int32; w: int32", '["cdiv(h * w, block)", "c", "n"]') + """
__global__ void k(const float* x, float* y, int n, int c, int h, int w)
{
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    int channel = blockIdx.y;
    int image = blockIdx.z;
    if (p < h * w)
    {
        y[(image * h * w + p) * c + channel] = x[(image * c + channel) * h * w + p];
    }
}
"""  # fmt: skip
PRODUCT = contract("m = 128, n = 128, k = 128", "a: in float32[m, k]; b: in float32[k, n]; c: out float32[m, n]; m: int32; n: int32; k: int32", '["cdiv(n, 16)", "cdiv(m, 16)"]', "[16, 16]") + """
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n)
    {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i)
        {
            sum += a[row * k + i] * b[i * n + col];
        }
        c[row * n + col] = sum;
    }
}
"""  # fmt: skip
TREE = (
    contract("rows = 64, cols = 512", MATRIX.format("rows"), '"rows"')
    + """
__global__ void k(const float* x, float* y, int rows, int cols)
{
    __shared__ float part[256];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
    {
        sum += x[blockIdx.x * cols + c];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1)
    {
        if (threadIdx.x < s)
        {
            part[threadIdx.x] += part[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
    {
        y[blockIdx.x] = part[0];
    }
}
"""
)


@pytest.fixture
def offered(ask: Ask) -> Callable[[str, Recipe], Candidate]:
    """`offered(source, recipe)`: the recipe's first candidate, as it is offered."""

    def first(source: str, recipe: Recipe) -> Candidate:
        request = ask(source)
        kernel = replace(request.kernel, unit=replace(request.kernel.unit, language="cuda"))
        return next(readable(kernel, one) for one in recipe.candidates(replace(request, kernel=kernel)))

    return first


def test_a_warp_per_column_claims_no_neighbouring_elements(offered: Callable[..., Candidate]) -> None:
    assert "neighbouring" not in offered(COLUMNS, warp_per_row.RECIPE).why
    assert "its lanes access neighbouring elements" in offered(ROWS, warp_per_row.RECIPE).why


def test_sums_of_one_pass_have_the_names_and_the_case_of_the_field(offered: Callable[..., Candidate]) -> None:
    text = offered(MOMENTS, single_pass_moments.RECIPE).kernel.source
    assert "float shift = 0.0f, count = 0.0f, shiftedSum = 0.0f, shiftedSquares = 0.0f;" in text
    assert not re.search(r"\b(?:taken|shifted|shifted2)\b", text)


SQUARED = (
    contract("rows = 1024, cols = 512", MATRIX.format("rows"), '"rows"')
    + """
__global__ void k(const float* x, float* y, int rows, int cols)
{
    const float* row = x + static_cast<size_t>(blockIdx.x) * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
    {
        const float centred = row[i] - 1.0f;
        sum += centred * centred;
    }
    if (threadIdx.x == 0)
    {
        y[blockIdx.x] = sum;
    }
}
"""
)


def test_the_rest_of_a_vector_loop_is_in_braces_and_casts_are_those_of_the_file(
    offered: Callable[..., Candidate],
) -> None:
    text = offered(SQUARED, vectorize.RECIPE).kernel.source
    assert re.search(r"\n    for \(int i = 4 \* [^\n]*\)\n    \{\n        each\(row\[i\]\);\n    \}\n", text), text
    assert "reinterpret_cast<size_t>(row) % 16 == 0" in text
    below = SQUARED.replace("    {\n        y[blockIdx.x] = sum;\n    }\n", "        y[blockIdx.x] = sum;\n")
    text = offered(
        below.replace("static_cast<size_t>(blockIdx.x)", "(size_t)blockIdx.x"), vectorize.RECIPE
    ).kernel.source
    assert re.search(r"\n    for \(int i = 4 \* [^\n]*\)\n        each\(row\[i\]\);\n", text), text
    assert "(size_t)row % 16 == 0" in text


def test_a_tile_needs_no_parentheses_around_a_product(offered: Callable[..., Candidate]) -> None:
    found = offered(PERMUTED, tile_permute.RECIPE)
    assert found.contract.grid == ("cdiv(h * w, 32)", "cdiv(c, 32)", "n")
    assert "if (p < h * w && channel < c)\n" in found.kernel.source


def test_the_body_of_a_removed_test_loses_its_braces(offered: Callable[..., Candidate]) -> None:
    text = offered(PRODUCT, tile_matmul.RECIPE).kernel.source
    assert "\n    float sum = 0.0f;\n" in text
    assert text.count("{") == text.count("}")
    assert not re.search(r";\n\s*\{\n", text), text


def test_new_functions_have_their_braces_where_the_kernel_has_them(offered: Callable[..., Candidate]) -> None:
    text = offered(TREE, warp_reduce.RECIPE).kernel.unit.text
    assert "__device__ float warp_sum(float value)\n{\n" in text
    assert not re.search(r"\) \{$", text, re.MULTILINE), text


def test_a_quotient_of_two_numbers_stays(ask: Ask) -> None:
    assert not list(divide.RECIPE.candidates(ask(COLUMNS.replace("y[col] = acc;", "y[col] = acc * (1.0f / 6.0f);"))))


def test_a_head_that_has_become_too_long_is_wrapped() -> None:
    head = "__global__ void scale(const float* values, const float* factors, float* results, int n) {"
    old = find_kernels(text_unit(f"{contract('n = 8', 'values: in float32[n]; factors: in float32[n]; results: out float32[n]; n: int32', '1')}{head}\n}}\n"))[0]  # fmt: skip
    old = replace(old, unit=replace(old.unit, language="cuda"))
    new = _replaced(old, "float* ", "float* __restrict__ ")
    text = readable(old, Candidate("recipe:restrict-pointers", "", new, contract_for(old))).kernel.unit.text
    assert "void scale(const float* __restrict__ values, const float* __restrict__ factors,\n" in text
    assert max(map(len, text.split("\n"))) <= 100


def _replaced(kernel: Kernel, before: str, after: str) -> Kernel:
    edits = [(found.start(), found.end(), after) for found in re.finditer(re.escape(before), kernel.unit.text)]
    return apply_edits(kernel, edits)
