"""Products of quantised rows with a vector, with a scale for each group of elements: read in packs, and right by the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ rows = 9, groups = 40 }, { rows = 5, groups = 3 }, { rows = 1, groups = 1 }"
COUNTS = {"rows": "int32", "groups": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float sum = 0.0f;\n"
SCALES = "in float32[rows, groups] ~ uniform(0.01, 0.1)"
BYTES = {
    "w": "in int8[rows, groups * 32]", "scales": SCALES, "x": "in float32[groups * 32] ~ normal",
    "bias": "in float32[rows] ~ normal", "y": "out float32[rows]", **COUNTS,
}  # fmt: skip
BYTES_BODY = (
    f"{ROW}  for (int i = 0; i < groups * 32; ++i)\n    sum += w[r * groups * 32 + i] * scales[r * groups + i / 32] * x[i];\n"
    "  y[r] = fmaxf(sum + bias[r], 0.0f);"
)
NIBBLES = {
    "q": "in uint8[rows, groups * 16]", "scales": SCALES, "x": "in float32[groups * 32] ~ normal",
    "y": "out float32[rows]", **COUNTS,
}  # fmt: skip
NIBBLES_BODY = (
    f"{ROW}  for (int i = 0; i < groups * 32; ++i) {{\n    int b = q[r * groups * 16 + i / 2];\n"
    "    sum += ((i % 2 ? b >> 4 : b & 15) - 8) * scales[r * groups + i / 32] * x[i];\n  }\n  y[r] = sum;"
)
CASES = {
    "scales that are repeated": (
        BYTES, "np.maximum((w * np.repeat(scales, 32, axis=1)) @ x + bias, 0)", BYTES_BODY,
    ),
    "sums of groups that are scaled": (
        BYTES,
        "def reference(w, scales, x, bias):\n    parts = (w * x).reshape(len(w), -1, 32).sum(axis=2)\n"
        "    return np.maximum((parts * scales).sum(axis=1) + bias, 0)",
        BYTES_BODY,
    ),
    "nibbles of bytes": (
        NIBBLES,
        "def reference(q, scales, x):\n    low, high = (q & 15).astype(np.float32) - 8, (q >> 4).astype(np.float32) - 8\n"
        "    w = np.stack([low, high], axis=-1).reshape(len(q), -1)\n    return (w * np.repeat(scales, 32, axis=1)) @ x",
        NIBBLES_BODY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_quantised_rows_are_read_in_packs_and_right(name: str, make: Any, tmp_path: Path, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, contract = make(args, reference, sizes=SIZES, body=body, grid="cdiv(rows, block)")
    first = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert first.schedule == "scaled-products-warp"
    assert "kPack = 16;" in first.definition
    assert first.helpers.count("= scales[") == 1  # once for each pack
    authors = assert_judged_right(session, kernel)
    assert all("scaled-products" in one for one in authors)


def test_a_scale_has_a_name_beside_an_array_of_one_letter(make: Any, tmp_path: Path) -> None:
    reference = "def reference(w, s, x, bias):\n    groups = w.reshape(len(w), -1, 32) * s[..., None]\n    return (groups.reshape(w.shape) * x).sum(1) + bias"
    args = {("s" if name == "scales" else name): entry for name, entry in BYTES.items()}
    kernel, contract = make(args, reference, sizes=SIZES, body="  y[0] = 0.0f;", grid="cdiv(rows, block)")
    first = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert first.schedule == "scaled-products-warp"
    assert "const float scale = s[" in first.helpers


def test_weights_of_single_positions_are_left_to_other_schedules(make: Any, tmp_path: Path) -> None:
    reference = "def reference(w, scales, x, bias):\n    c = np.arange(w.shape[1])\n    return (w * scales[:, c // 32] * x * c).sum(axis=1) + bias"
    kernel, contract = make(BYTES, reference, sizes=SIZES, body=BYTES_BODY, grid="cdiv(rows, block)")
    texts = list(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert texts
    assert not any("scaled-products" in one.schedule for one in texts)
