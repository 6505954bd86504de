"""Recipes that change the order of accesses to memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.suggest.recipes.coalesce import RECIPE as COALESCE
from kernelmate.suggest.recipes.exchange_axes import RECIPE as EXCHANGE_AXES
from kernelmate.suggest.recipes.flat_order import RECIPE as FLAT_ORDER
from kernelmate.suggest.recipes.interleave_chunks import RECIPE as INTERLEAVE_CHUNKS
from kernelmate.suggest.recipes.stage_records import RECIPE as STAGE_RECORDS

COALESCE_SOURCE = """
#include <cstdio>
// /// kernelmate
// sizes = [{{ h = 70, w = 45 }}, {{ h = 1, w = 1 }}]
// grid = ["cdiv(h, 16)", "cdiv(w, block_y)"]
// block = [16, 8]
// reference = "x * 2"
// [args]
// x = "in float32[h, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void twice(const float* x, float* y, int h, int w) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // row
  const int j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < h && j < w) {body}
}}
void run(const float* x, float* y, int h, int w) {{
  twice<<<dim3((h + 15) / 16, (w + 7) / 8), dim3(16, 8)>>>(x, y, h, w);
}}
"""


def test_axes_change_roles_in_the_kernel_its_contract_and_its_launches(judged) -> None:
    (one,) = judged(COALESCE_SOURCE.format(body="y[i * w + j] = 2 * x[i * w + j];"), COALESCE, "less global traffic")
    text = one.candidate.kernel.unit.text
    assert "const int i = blockIdx.y * blockDim.y + threadIdx.y;  // row" in text
    assert one.candidate.contract.block == ("8", "16")
    assert one.candidate.contract.grid == ("cdiv(w, block_x)", "cdiv(h, 16)")
    assert "dim3(8, 16)" in text
    assert "times fewer sectors" in one.candidate.why
    assert one.verdict.counters.global_load_sectors <= 70 * 45


@pytest.mark.parametrize(
    "body",
    [
        "y[j * h + i] = 2 * x[j * h + i];",
        "y[i * w + j] = __shfl_xor_sync(0xffffffffu, x[i * w + j], 1);",
        "y[i * w + j] = place(threadIdx) + x[i * w + j];",
        "y[i * w + j] = twice_of(x[i * w + j]);",
    ],
)
def test_coalesced_kernels_and_those_that_depend_on_lanes_stay(ask, body: str) -> None:
    assert list(COALESCE.candidates(ask(COALESCE_SOURCE.format(body=body)))) == []


def test_one_dimension_has_no_axes_to_exchange(ask) -> None:
    source = (
        COALESCE_SOURCE.format(body="y[i] = x[i];")
        .replace("[16, 8]", "16")
        .replace('["cdiv(h, 16)", "cdiv(w, block_y)"]', '"h"')
    )
    assert list(COALESCE.candidates(ask(source))) == []


EXCHANGE_AXES_SOURCE = """
// /// kernelmate
// sizes = [{{ d = 40, h = 6, w = 70 }}, {{ d = 1, h = 1, w = 1 }}]
// grid = {grid}
// block = {block}
// reference = "x * b[:, None, None]"
// [args]
// x = "in float32[d, h, w]"
// b = "in float32[d]"
// y = "out float32[d, h, w]"
// d = "int32"
// h = "int32"
// w = "int32"
// ///
__global__ void k(const float* x, const float* b, float* y, int d, int h, int w) {{
  {body}
  y[(z * h + r) * w + c] = x[(z * h + r) * w + c] * b[z];
}}
"""
SLOWEST_ON_X = """const int z = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y;
  const int c = blockIdx.z;
  if (z >= d) return;"""
SLOWEST_ON_X_IN_BLOCKS = """int z = blockIdx.x * blockDim.x + threadIdx.x;
  int c = blockIdx.y * blockDim.y + threadIdx.y;
  int r = blockIdx.z;
  if (z >= d || c >= w) return;"""


@pytest.mark.parametrize(
    ("body", "grid", "block", "after"),
    [
        (SLOWEST_ON_X, '["cdiv(d, 64)", "h", "w"]', "64", ("cdiv(w, 64)", "cdiv(h, 4)", "d")),
        (SLOWEST_ON_X_IN_BLOCKS, '["cdiv(d, 8)", "cdiv(w, 8)", "h"]', "[8, 8]", ("cdiv(w, 64)", "cdiv(h, 4)", "d")),
    ],
)
def test_the_contiguous_index_goes_to_x(judged, body: str, grid: str, block: str, after: tuple[str, ...]) -> None:
    (one,) = judged(
        EXCHANGE_AXES_SOURCE.format(body=body, grid=grid, block=block),
        EXCHANGE_AXES,
        "move fewer bytes through global memory",
    )
    assert one.candidate.contract.grid == after
    assert one.candidate.contract.block == ("64", "4", "1")
    assert one.verdict.objective.after < 0.75 * one.verdict.objective.before


def test_a_launch_in_the_right_order_stays(ask) -> None:
    body = """const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y, z = blockIdx.z;
  if (c >= w) return;"""
    assert (
        list(
            EXCHANGE_AXES.candidates(
                ask(EXCHANGE_AXES_SOURCE.format(body=body, grid='["cdiv(w, 64)", "h", "d"]', block="64"))
            )
        )
        == []
    )


def test_threads_that_meet_stay(ask) -> None:
    body = SLOWEST_ON_X + "\n  __syncthreads();"
    assert (
        list(
            EXCHANGE_AXES.candidates(
                ask(EXCHANGE_AXES_SOURCE.format(body=body, grid='["cdiv(d, 64)", "h", "w"]', block="64"))
            )
        )
        == []
    )


FLAT_ORDER_SOURCE = """
// /// kernelmate
// sizes = [{{ b = 5, h = 30, w = 64 }}, {{ b = 1, h = 1, w = 1 }}]
// grid = "cdiv(b * h * w, 128)"
// block = 128
// reference = "x * 2"
// [args]
// x = "in float32[b, h, w]"
// y = "out float32[b, h, w]"
// b = "int32"
// h = "int32"
// w = "int32"
// ///
__global__ void k(const float* x, float* y, int b, int h, int w) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= b * h * w) return;
  {parts}
  y[(n * h + r) * w + c] = 2.0f * x[(n * h + r) * w + c];
}}
"""


@pytest.mark.parametrize(
    "parts",
    [
        "const int n = i % b;\n  const int r = i / b % h;\n  const int c = i / (b * h);",
        "const int n = i % b;\n  const int rest = i / b;\n  const int r = rest % h;\n  const int c = rest / h;",
        "int r = i % h, n = (i / h) % b, c = i / (h * b);",
    ],
)
def test_the_contiguous_index_is_the_lowest_part(judged, parts: str) -> None:
    (one,) = judged(FLAT_ORDER_SOURCE.format(parts=parts), FLAT_ORDER, "move fewer bytes through global memory")
    text = one.candidate.kernel.source
    assert "c = i % w" in text
    assert "rest" not in text
    assert one.verdict.objective.after < one.verdict.objective.before / 3


@pytest.mark.parametrize(
    "parts",
    [
        "const int c = i % w;\n  const int r = i / w % h;\n  const int n = i / (w * h);",
        "const int n = i % b;\n  const int r = i / b % h;\n  const int c = i / (b * h);\n  y[i] = 0.0f;",
        "const int n = i % b;\n  const int r = i / w % h;\n  const int c = i / (b * h);",
    ],
)
def test_other_orders_and_other_uses_stay(ask, parts: str) -> None:
    assert list(FLAT_ORDER.candidates(ask(FLAT_ORDER_SOURCE.format(parts=parts)))) == []


def test_a_product_of_lengths_may_have_a_name(judged) -> None:
    parts = "const int plane = h * b;\n  const int c = i / plane;\n  const int rest = i % plane;\n  const int r = rest % h, n = rest / h;"
    (one,) = judged(FLAT_ORDER_SOURCE.format(parts=parts), FLAT_ORDER, "move fewer bytes through global memory")
    assert "c = i % w" in one.candidate.kernel.source


@pytest.fixture
def chunks(x_to_y) -> Callable[[str], str]:
    """`chunks(body)`: every thread has a run of PER elements."""

    def made(body: str) -> str:
        text = f"""
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int j = 0; j < PER; j++) {{
    {body}
  }}
"""
        return x_to_y(
            text, head="\n#define PER 4", n=(3000, 5, 1), grid="cdiv(n, 256)", block=64, reference="x + 1"
        )  # fmt: skip

    return made


def test_neighbouring_lanes_get_neighbouring_elements(judged, chunks) -> None:
    body = "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + 1.0f;"
    (one,) = judged(chunks(body), INTERLEAVE_CHUNKS, "less global traffic")
    assert "int i = j * (gridDim.x * blockDim.x) + t;" in one.candidate.kernel.source
    assert one.verdict.counters.global_load_requests <= 3000 // 32 + 2


@pytest.mark.parametrize(
    "body",
    [
        "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + j;",
        "int i = t * 8 + j;\n    if (i < n) y[i] = x[i];",
        "int i = t * PER + j;\n    if (i < n) y[0] += x[i];",
        "int i = t * PER + j;\n    if (i >= n) return;\n    y[i] = x[i];",
        "int i = n * PER + j;\n    if (i < n) y[i] = x[i];",
    ],
)
def test_other_runs_stay(ask, chunks, body: str) -> None:
    assert list(INTERLEAVE_CHUNKS.candidates(ask(chunks(body)))) == []


STAGE_RECORDS_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700, m = 8 }}, {{ n = 1, m = 8 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in {dtype}[n, {length}]{draw}"
// y = "out float32[{out}]"
// n = "int32"
// m = "int32"
// ///
__global__ void k(const {type}* x, float* y, int n, int m) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""
NORM = "y[i] = x[3 * i] * x[3 * i] + x[3 * i + 1] * x[3 * i + 1] + x[i * 3 + 2] * x[i * 3 + 2];"
CHANGED = "for (int e = 0; e < 8; ++e) y[i * 8 + e] = x[i * 8 + e] + x[i * 8 + (e + 1) % 8];"
HASH = "unsigned h = 5u;\n  for (int e = 0; e < 8; ++e) h = h * 31u + x[8 * i + e];\n  y[i] = h % 1000u;"


@pytest.mark.parametrize(
    ("body", "reference", "length", "out", "dtype", "kind"),
    [
        (NORM, "(x * x).sum(axis=1)", "3", "n", "float32", "float"),
        (CHANGED, "x + np.roll(x, -1, axis=1)", "8", "n, 8", "float32", "float"),
        (HASH, "((5 * 31**8 + x.astype(np.int64) @ 31 ** np.arange(7, -1, -1)) % 2**32 % 1000).astype(np.float32)", "8", "n", "uint8", "unsigned char"),
    ],
)  # fmt: skip
def test_a_block_moves_its_records_in_the_order_of_memory(judged, body, reference, length, out, dtype, kind) -> None:
    source = STAGE_RECORDS_SOURCE.format(
        body=body, reference=reference, length=length, out=out, dtype=dtype, type=kind, draw=""
    )
    (one,) = judged(source, STAGE_RECORDS, "move fewer bytes through global memory")
    assert f"__shared__ {kind} own_x[" in one.candidate.kernel.source
    assert one.verdict.objective.after < 0.6 * one.verdict.objective.before


@pytest.mark.parametrize(
    "body", ["y[i] = x[i];", "y[i] = x[i * m + 1] + x[7];", "y[i] = x[i * m] + x[(i + 1) % n * m];"]
)
def test_other_accesses_stay(ask, body: str) -> None:
    source = STAGE_RECORDS_SOURCE.format(
        body=body, reference="x", length="m", out="n", dtype="float32", type="float", draw=""
    )
    assert list(STAGE_RECORDS.candidates(ask(source, "move fewer bytes through global memory"))) == []
