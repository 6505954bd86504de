from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.serial_reduction import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 9, cols = 300 }}, {{ rows = 1, cols = 5 }}]
// grid = "rows"
// block = 128
// require = ["cols > 0"]
// reference = "{reference}"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float part[128];
  const int t = threadIdx.x;
  float v = {start};
  for (int c = t; c < cols; c += 128) v = {join};
  part[t] = v;
  __syncthreads();
  if (t == 0) {{
    {serial}
    y[blockIdx.x] = s;
  }}
}}
"""
SUM = "float s = 0.0f;\n    for (int i = 0; i < 128; ++i) s += part[i];"
MAXIMUM = "float s = part[0];\n    for (int i = 1; i < blockDim.x; ++i) s = fmaxf(s, part[i]);"


@pytest.mark.parametrize(
    ("reference", "start", "join", "serial"),
    [
        ("x.sum(axis=1)", "0.0f", "v + x[blockIdx.x * cols + c]", SUM),
        ("x.max(axis=1)", "-INFINITY", "fmaxf(v, x[blockIdx.x * cols + c])", MAXIMUM),
    ],
)
def test_warps_join_their_values_before_one_thread_does(judged, reference, start, join, serial) -> None:
    source = SOURCE.format(reference=reference, start=start, join=join, serial=serial)
    (one,) = judged(source, RECIPE, "use less shared memory")
    assert "if (t % 32 == 0) part[t / 32] = part_value;" in one.candidate.kernel.source
    assert one.verdict.objective.after == 16
    assert one.verdict.accepted is True


@pytest.mark.parametrize(
    "serial",
    ["float s = 0.0f;\n    for (int i = 0; i < 64; ++i) s += part[i];", "float s = 0.0f;\n    for (int i = 0; i < 128; ++i) s += i * part[i];\n    s += part[3];"],
)  # fmt: skip
def test_values_that_are_read_otherwise_stay(ask, serial: str) -> None:
    source = SOURCE.format(reference="x", start="0.0f", join="v + x[c]", serial=serial)
    assert list(RECIPE.candidates(ask(source, "use less shared memory"))) == []
