from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.warp_per_row import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 41, cols = 75 }}, {{ rows = 1, cols = 1 }}]
// grid = "cdiv(rows, 64)"
// block = 64
// require = ["cols > 0"]
// reference = "{reference}"
// [args]
// x = "in float32[rows, cols] ~ uniform(-4, 4)"
// y = "out {dtype}[{shape}]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, {type}* y, int rows, int cols) {{
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  {body}
}}
"""


def source(body: str, reference: str, shape: str = "rows", dtype: str = "float32", kind: str = "float") -> str:
    return SOURCE.format(body=body, reference=reference, shape=shape, dtype=dtype, type=kind)


SUM = "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n  y[r] = s;"


def test_lanes_share_a_sum_and_one_of_them_stores_it(judged) -> None:
    (one,) = judged(source(SUM, "x.sum(axis=1)"), RECIPE)
    text = one.candidate.kernel.source
    assert "(blockIdx.x * blockDim.x + threadIdx.x) / 32" in text
    assert "for (int c = lane; c < cols; c += 32)" in text
    assert "if (lane == 0) y[r] = s;" in text
    assert one.candidate.contract.grid == ("cdiv(rows * 32, 64)",)
    assert one.verdict.speedup.median > 1.2


def test_the_files_constant_names_the_length_of_a_warp_and_a_count_of_warps_does_not(judged) -> None:
    text = source(SUM, "x.sum(axis=1)")
    own = text.replace("\n// /// k", "\nconstexpr int kWarpSize = 32;\n// /// k")
    (one,) = judged(own, RECIPE)
    assert "(blockIdx.x * blockDim.x + threadIdx.x) / kWarpSize" in one.candidate.kernel.source
    assert "for (int offset = kWarpSize / 2; offset > 0; offset /= 2)" in one.candidate.kernel.source
    (other,) = judged(own.replace("kWarpSize", "kWarps"), RECIPE)
    assert (
        "threadIdx.x % 32;  // a warp for each r: blocks need a multiple of 32 threads" in other.candidate.kernel.source
    )


@pytest.mark.parametrize(
    ("body", "reference", "shape", "dtype", "kind"),
    [
        (
            "float m = x[r * cols];\n  for (int c = 1; c < cols; ++c) m = fmaxf(m, x[r * cols + c]);\n  y[r] = m;",
            "x.max(axis=1)", "rows", "float32", "float",
        ),
        (
            "float m = 1e30f;\n  int at = 0;\n  for (int c = 0; c < cols; ++c) {\n    float v = x[r * cols + c];\n"
            "    if (v < m) {\n      m = v;\n      at = c;\n    }\n  }\n  y[r] = at;",
            "x.argmin(axis=1).astype(np.int32)", "rows", "int32", "int",
        ),
        (
            "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n"
            "  for (int c = 0; c < cols; ++c) y[r * cols + c] = x[r * cols + c] - s / cols;",
            "x - x.mean(axis=1, keepdims=True)", "rows, cols", "float32", "float",
        ),
        (
            "y[r] = 1.0f;\n  for (int c = 0; c < cols; ++c) y[r] += x[r * cols + c];",
            "1 + x.sum(axis=1)", "rows", "float32", "float",
        ),
    ],
)  # fmt: skip
def test_extremes_places_elements_and_sums_in_memory_are_right(judged, body, reference, shape, dtype, kind) -> None:
    (one,) = judged(source(body, reference, shape, dtype, kind), RECIPE)
    assert "+= 32)" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "body",
    [
        "y[r] = x[r];",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s = s * 0.5f + x[r * cols + c];\n  y[r] = s;",
        "for (int c = 1; c < cols; ++c) y[r * cols + c] = y[r * cols + c - 1] + x[r * cols + c];",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) {\n    if (x[c] > 1.0f) break;\n    s += x[c];\n  }\n  y[r] = s;",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) {\n    s += x[c];\n    y[r] = s;\n  }",
        "y[r] = threadIdx.x;\n  for (int c = 0; c < cols; ++c) y[r] += x[c];",
    ],
)
def test_turns_that_need_each_other_stay_with_one_thread(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(source(body, "x")))) == []


def test_a_grid_that_follows_from_no_size_stays(ask) -> None:
    assert list(RECIPE.candidates(ask(source(SUM, "x").replace('"cdiv(rows, 64)"', "8")))) == []


FEATURES = """
// /// kernelmate
// sizes = [{ bags = 30, longest = 12, width = 70, rows = 50 }, { bags = 1, longest = 1, width = 1, rows = 1 }]
// grid = "cdiv(bags, 64)"
// block = 64
// reference = "table[ids].sum(axis=1)"
// [args]
// table = "in float32[rows, width] ~ uniform(-4, 4)"
// ids = "in int32[bags, longest] ~ integers(0, rows)"
// y = "out float32[bags, width]"
// bags = "int32"
// longest = "int32"
// width = "int32"
// ///
__global__ void k(const float* table, const int* ids, float* y, int bags, int longest, int width) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= bags) return;
  for (int f = 0; f < width; ++f) y[b * width + f] = 0.0f;
  for (int j = 0; j < longest; ++j) {
    const int row = ids[b * longest + j];
    for (int f = 0; f < width; ++f) y[b * width + f] += table[row * width + f];
  }
}
"""


def test_lanes_share_a_loop_over_features_inside_another(judged) -> None:
    source = FEATURES.replace(", rows = 50", "").replace(", rows = 1 }", " }").replace("[rows, width]", "[50, width]").replace("integers(0, rows)", "integers(0, 50)")  # fmt: skip
    found = judged(source, RECIPE, "move fewer bytes through global memory")
    text = found[0].candidate.kernel.source
    assert "for (int j = 0; j < longest; ++j)" in text
    assert text.count("for (int f = lane; f < width; f += 32)") == 2
    assert found[0].verdict.objective.after < found[0].verdict.objective.before / 2


NEAREST = """
// /// kernelmate
// sizes = [{ n = 40, m = 9, f = 50 }, { n = 1, m = 1, f = 1 }]
// grid = "cdiv(n, 64)"
// block = 64
// require = ["m > 0"]
// reference = "((x[:, None] - c) ** 2).sum(axis=2).argmin(axis=1).astype(np.int32)"
// [args]
// x = "in float32[n, f]"
// c = "in float32[m, f]"
// y = "out int32[n]"
// n = "int32"
// m = "int32"
// f = "int32"
// ///
__global__ void k(const float* x, const float* c, int* y, int n, int m, int f) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float best = 1e30f;
  int at = 0;
  for (int j = 0; j < m; ++j) {
    float d = 0.0f;
    for (int k = 0; k < f; ++k) {
      const float e = x[i * f + k] - c[j * f + k];
      d += e * e;
    }
    if (d < best) {
      best = d;
      at = j;
    }
  }
  y[i] = at;
}
"""


def test_both_ways_of_sharing_two_nested_loops_are_right(judged) -> None:
    outer, inner = judged(NEAREST, RECIPE)
    assert "for (int j = lane; j < m; j += 32)" in outer.candidate.kernel.source
    assert "for (int k = lane; k < f; k += 32)" in inner.candidate.kernel.source


DENSE = """
// /// kernelmate
// sizes = [{ batch = 20, outs = 50, ins = 90 }, { batch = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(batch, 16)"]
// block = [16, 16]
// reference = "x @ w.T"
// [args]
// x = "in float32[batch, ins]"
// w = "in float32[outs, ins]"
// y = "out float32[batch, outs]"
// batch = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void k(const float* x, const float* w, float* y, int batch, int outs, int ins) {
  const int o = blockIdx.x * blockDim.x + threadIdx.x;
  const int b = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || b >= batch) return;
  float s = 0.0f;
  for (int i = 0; i < ins; ++i) s += x[b * ins + i] * w[o * ins + i];
  y[b * outs + o] = s;
}
"""


def test_lanes_become_the_x_axis_of_a_block_of_two(judged) -> None:
    (one,) = judged(DENSE, RECIPE)
    assert one.candidate.contract.grid == ("outs", "cdiv(batch, 8)")
    assert one.candidate.contract.block == ("32", "8")
    assert "const int o = blockIdx.x;" in one.candidate.kernel.source


def test_bits_are_joined_by_their_own_operator(judged) -> None:
    body = "unsigned h = 7u;\n  for (int c = 0; c < cols; ++c) h ^= __float_as_uint(x[r * cols + c]);\n  y[r] = h;"
    reference = "np.bitwise_xor.reduce(x.astype(np.float32).view(np.uint32), axis=1) ^ np.uint32(7)"
    (one,) = judged(source(body, reference, dtype="uint32", kind="unsigned"), RECIPE)
    assert "h ^= __shfl_xor_sync" in one.candidate.kernel.source
    assert "if (lane != 0) h = 0;" in one.candidate.kernel.source
