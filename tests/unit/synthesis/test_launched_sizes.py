"""Sizes that only a kernel's launch holds: they become sides of the new grid, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

PRODUCT = {"a": "in float32[m, k]", "b": "in float32[k, n]", "y": "out float32[m, n]", "n": "int32", "k": "int32"}
PRODUCT_BODY = """  const int i = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (i >= n) return;
  float sum = 0.0f;
  for (int j = 0; j < k; ++j) sum += a[r * k + j] * b[j * n + i];
  y[r * n + i] = sum;
"""
TURNED = {"x": "in float32[c, h, w]", "y": "out float32[w, c, h]", "w": "int32"}
TURNED_BODY = """  const int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.z * gridDim.y + blockIdx.y;
  if (i < w) y[i * gridDim.z * gridDim.y + row] = x[row * w + i];
"""
IMAGE = {
    "x": "in float32[ci, h, w]", "k": "in float32[co, ci, 3, 3]", "y": "out float32[co, h, w]", "ci": "int32", "h": "int32",
    "w": "int32",
}  # fmt: skip
IMAGE_BODY = """  const int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;
  if (i >= h * w) return;
  const int row = i / w - 1, col = i % w - 1;
  float sum = 0.0f;
  for (int c = 0; c < ci; ++c)
    for (int a = 0; a < 3; ++a)
      for (int b = 0; b < 3; ++b) {
        if (row + a < 0 || row + a >= h || col + b < 0 || col + b >= w) continue;
        sum += x[(c * h + row + a) * w + col + b] * k[((o * ci + c) * 3 + a) * 3 + b];
      }
  y[o * h * w + i] = sum;
"""
IMAGE_REFERENCE = """def reference(x, k, h, w):
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    taps = ((a, b) for a in range(3) for b in range(3))
    return sum(np.einsum("oc,chw->ohw", k[:, :, a, b], p[:, a : a + h, b : b + w]) for a, b in taps)"""
AVERAGE = {
    "x": "in float32[c, h, w]",
    "k": "in float32[w] ~ uniform(0.1, 0.9)",
    "y": "out float32[c, h, w]",
    "h": "int32",
    "w": "int32",
}
AVERAGE_BODY = """  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= w) return;
  float mean = 0.0f;
  for (int t = 0; t < h; ++t) {
    const int at = (blockIdx.y * h + t) * w + i;
    mean = k[i] * x[at] + (1.0f - k[i]) * mean;
    y[at] = mean;
  }
"""
AVERAGE_REFERENCE = """def reference(x, k):
    y, mean = np.empty_like(x), 0.0
    for t in range(x.shape[1]):
        mean = k * x[:, t] + (1 - k) * mean
        y[:, t] = mean
    return y"""
CASES = {
    "the batches of a moving average": (
        AVERAGE, AVERAGE_REFERENCE, AVERAGE_BODY, ("cdiv(w, 64)", "c"), ("c",),
        "{ c = 3, h = 10, w = 70 }, { c = 2, h = 3, w = 7 }, { c = 1, h = 1, w = 1 }",
    ),
    "the rows of a product": (
        PRODUCT, "a @ b", PRODUCT_BODY, ("cdiv(n, 64)", "m"), ("m",),
        "{ m = 70, k = 40, n = 65 }, { m = 3, k = 5, n = 7 }, { m = 1, k = 1, n = 1 }",
    ),
    "two axes that are turned": (
        TURNED, "x.transpose(2, 0, 1)", TURNED_BODY, ("cdiv(w, 64)", "h", "c"), ("h", "c"),
        "{ c = 3, h = 35, w = 40 }, { c = 1, h = 1, w = 1 }",
    ),
    "the channels of a convolution": (
        IMAGE, IMAGE_REFERENCE, IMAGE_BODY, ("cdiv(h * w, 64)", "co"), ("co",),
        "{ ci = 3, co = 10, h = 20, w = 37 }, { ci = 1, co = 1, h = 1, w = 1 }",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_kernels_find_such_sizes_in_their_grid(name: str, make: Any, session: Any, tmp_path: Path) -> None:
    args, reference, body, grid, launched, sizes = CASES[name]
    kernel, contract = make(args, reference, body=body, grid='", "'.join(grid), sizes=sizes, block=64)
    texts = list(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert texts
    for one in texts:
        for size in launched:
            assert f"const int {size} = gridDim.{'xyz'[one.grid.index(size)]};" in one.definition
    assert_judged_right(session, kernel)


def test_a_size_that_nothing_holds_is_said(make: Any, tmp_path: Path) -> None:
    grid, sizes = 'cdiv(n, 64)", "16', "{ m = 16, k = 40, n = 65 }"
    kernel, contract = make(PRODUCT, "a @ b", body=PRODUCT_BODY, grid=grid, sizes=sizes, block=64)
    with pytest.raises(Refused, match="does not get the size m"):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))
