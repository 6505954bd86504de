from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.vectorize import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3001 }}, {{ n = 4 }}, {{ n = 3 }}, {{ n = 1 }}]
// grid = "{grid}"
// block = 64
// reference = "x + 1"
// [args]
// x = "in {dtype}[n] ~ integers(0, 50)"
// y = "out {dtype}[n]"
// n = "int32"
// ///
__global__ void k(const {type}* x, {type}* y, int n) {{
  {body}
}}
"""
THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) {\n    y[i] = x[i] + 1;  // each\n  }"
LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + 1;"


def source(body: str, dtype: str = "float32", kind: str = "float", grid: str = "cdiv(n, block)") -> str:
    return SOURCE.format(body=body, dtype=dtype, type=kind, grid=grid)


@pytest.mark.parametrize(
    ("dtype", "kind", "count"), [("float32", "float", 4), ("int16", "short", 8), ("uint8", "unsigned char", 16)]
)
def test_packs_of_sixteen_bytes_with_a_tail(judged, dtype: str, kind: str, count: int) -> None:
    (one,) = judged(source(THREAD, dtype, kind), RECIPE)
    text = one.candidate.kernel.source
    assert f"at[{count}]" in text
    assert f"i_base + {count} <= n && ((size_t)y | (size_t)x) % 16 == 0" in text
    assert text.count("// each") == 2
    assert one.candidate.contract.grid == (f"cdiv(n, block * {count})",)


def test_strided_loops_keep_their_grid(judged) -> None:
    (one,) = judged(source(LOOP, grid="min(cdiv(n, block), 8)"), RECIPE)
    assert one.candidate.contract.grid == ("min(cdiv(n, block), 8)",)


@pytest.mark.parametrize(
    "body",
    [
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = x[i] + i;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = x[n - 1 - i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) { if (x[i] > 0) y[i] = x[i]; }",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n - 1) y[i] = x[i];",
        "for (int i = threadIdx.x; i < n; i += 64) y[i] = x[i];",
    ],
)
def test_what_is_not_element_wise_stays(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(source(body)))) == []


def test_elements_that_fill_a_pack_alone_stay(ask) -> None:
    assert list(RECIPE.candidates(ask(source(THREAD, "float32", "float4")))) == []
