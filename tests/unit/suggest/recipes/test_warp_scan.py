from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.warp_scan import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 9, cols = 128 }}, {{ rows = 1, cols = 5 }}]
// grid = "rows"
// block = 128
// require = ["cols <= 128"]
// reference = "{reference}"
// [args]
// x = "in {dtype}[rows, cols]{draw}"
// y = "out {dtype}[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const {type}* x, {type}* y, int rows, int cols) {{
  const int t = threadIdx.x;
  const {type} v = t < cols ? x[blockIdx.x * cols + t] : {neutral};
  {body}
}}
"""
ONE = """__shared__ float s[128];
  s[t] = v;
  __syncthreads();
  for (int o = 1; o < 128; o *= 2) {
    const float add = t >= o ? s[t - o] : 0.0f;
    __syncthreads();
    s[t] += add;
    __syncthreads();
  }
  if (t < cols) y[blockIdx.x * cols + t] = s[t];"""
TWO = """__shared__ int s[2][128];
  int in = 0;
  s[0][t] = v;
  __syncthreads();
  for (int o = 1; o < blockDim.x; o <<= 1) {
    const int out = 1 - in;
    s[out][t] = t >= o ? s[in][t] + s[in][t - o] : s[in][t];
    in = out;
    __syncthreads();
  }
  if (t < cols) y[blockIdx.x * cols + t] = (t > 0 ? s[in][t - 1] : 0) + s[in][127];"""
MAXIMUM = (
    ONE.replace(": 0.0f;", ": -INFINITY;")
    .replace("s[t] += add;", "s[t] = fmaxf(s[t], add);")
    .replace(
        "const float add = t >= o ? s[t - o] : -INFINITY;", "const float add = t >= o ? fmaxf(s[t - o], s[t]) : s[t];"
    )
)


@pytest.mark.parametrize(
    ("body", "reference", "dtype", "kind", "draw", "neutral", "bytes_"),
    [
        (ONE, "np.cumsum(x, axis=1)", "float32", "float", "", "0.0f", 16),
        (TWO, "np.cumsum(x, axis=1) - x + x.sum(axis=1, keepdims=True)", "int32", "int", " ~ integers(-9, 9)", "0", 16),
        (MAXIMUM, "np.maximum.accumulate(x, axis=1)", "float32", "float", "", "-INFINITY", 16),
    ],
)
def test_a_scan_keeps_a_value_per_warp(judged, body, reference, dtype, kind, draw, neutral, bytes_) -> None:
    source = SOURCE.format(body=body, reference=reference, dtype=dtype, type=kind, draw=draw, neutral=neutral)
    (one,) = judged(source, RECIPE, "use less shared memory")
    text = one.candidate.kernel.source
    assert "__shfl_up_sync" in text
    assert text.count("__syncthreads();") == 1
    assert text.count("for (int w = 0;") == 1, "one loop over the warps for all that is taken from them"
    assert one.verdict.objective.after == bytes_
    assert one.verdict.accepted is True


@pytest.mark.parametrize(
    "change",
    [
        ("y[blockIdx.x * cols + t] = s[t]", "y[blockIdx.x * cols + t] = s[t ^ 1]"),
        ("o < 128", "o < 64"),
        ("o *= 2", "o *= 3"),
    ],
)
def test_other_uses_and_other_loops_stay(ask, change: tuple[str, str]) -> None:
    body = ONE.replace(*change)
    assert body != ONE
    text = SOURCE.format(body=body, reference="x", dtype="float32", type="float", draw="", neutral="0.0f")
    assert list(RECIPE.candidates(ask(text, "use less shared memory"))) == []


def test_the_buffer_has_the_number_of_warps_by_the_files_name(judged) -> None:
    body = ONE.replace("s[128]", "s[kBlock]").replace("o < 128", "o < kBlock")
    text = SOURCE.format(
        body=body, reference="np.cumsum(x, axis=1)", dtype="float32", type="float", draw="", neutral="0.0f"
    )
    (one,) = judged("constexpr int kBlock = 128;\n" + text, RECIPE)
    changed = one.candidate.kernel.source
    assert "__shared__ float warp_totals[kBlock / 32];" in changed
    assert "const int t = threadIdx.x;\n  const int lane = t % 32, warp = t / 32;\n" in changed
