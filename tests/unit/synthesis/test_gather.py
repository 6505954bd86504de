"""Elements by number written from references: right by the judge for computed and given numbers, at edges too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right, schedules_for

SIZES = "{ rows = 5, cols = 1031 }, { rows = 3, cols = 7 }, { rows = 6, cols = 64 }, { rows = 1, cols = 1 }"
INTS = {"rows": "int32", "cols": "int32"}
ITEM = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= rows * cols) return;\n  int r = i / cols, c = i % cols;\n"
BY_ITEM = "cdiv(rows * cols, block)"
MATRIX = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows, cols]", **INTS}

CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "rows with a scale": (
        {"t": "in float32[11, cols] ~ normal", "k": "in int32[rows] ~ integers(0, 11)", "s": "in float32[11] ~ normal", "y": "out float32[rows, cols]", **INTS},
        "t[k] * s[k][:, None]", f"{ITEM}  y[i] = t[k[r] * cols + c] * s[k[r]];", BY_ITEM,
    ),
    "sum of two rows": (
        {"t": "in float32[11, cols] ~ normal", "k": "in int32[rows] ~ integers(0, 11)", "m": "in int32[rows] ~ integers(0, 11)", "y": "out float32[rows, cols]", **INTS},
        "t[k] + t[m.astype(np.int64)]", f"{ITEM}  y[i] = t[k[r] * cols + c] + t[m[r] * cols + c];", BY_ITEM,
    ),
    "columns by number": (
        {**MATRIX, "x": "in float32[rows, 9] ~ normal", "k": "in int32[cols] ~ integers(0, 9)"}, "x[:, k]",
        f"{ITEM}  y[i] = x[r * 9 + k[c]];", BY_ITEM,
    ),
    "along an axis": (
        {**MATRIX, "k": "in int32[rows, cols] ~ integers(0, cols)"}, "np.take_along_axis(x, k.astype(np.int64), axis=1)",
        f"{ITEM}  y[i] = x[r * cols + k[i]];", BY_ITEM,
    ),
    "along the first axis": (
        {**MATRIX, "k": "in int32[rows, cols] ~ integers(0, rows)"}, "np.take_along_axis(x, k, axis=0) * 2",
        f"{ITEM}  y[i] = 2 * x[k[i] * cols + c];", BY_ITEM,
    ),
    "elements of a plane": (
        {**MATRIX, "k": "in int32[rows, cols] ~ integers(0, rows)", "m": "in int32[cols] ~ integers(0, cols)"},
        "x[k, np.maximum(m - 1, 0)[None, :] + 0 * k] - x[k, m[None, :] + 0 * k]",
        f"{ITEM}  y[i] = x[k[i] * cols + max(m[c] - 1, 0)] - x[k[i] * cols + m[c]];", BY_ITEM,
    ),
    "elements of a plane from its end": (
        {**MATRIX, "k": "in int32[rows, cols] ~ integers(0, rows)"}, "x[k, k * 0 - 1]", f"{ITEM}  y[i] = x[k[i] * cols + cols - 1];", BY_ITEM,
    ),
    "reversed": (MATRIX, "x[:, ::-1] + np.flip(x)", f"{ITEM}  y[i] = x[r * cols + cols - 1 - c] + x[rows * cols - 1 - i];", BY_ITEM),
    "rolled by negative numbers": (MATRIX, "np.take(x, np.arange(cols) - 1, axis=1)", f"{ITEM}  y[i] = x[r * cols + (c + cols - 1) % cols];", BY_ITEM),
    "a bias by the distance of row and column": (
        {"x": "in float32[2, 4, rows, cols] ~ normal", "t": "in float32[9, 4] ~ normal", "y": "out float32[2, 4, rows, cols]", **INTS},
        "def reference(x, t, rows, cols):\n    d = np.expand_dims(np.arange(cols), 0) - np.expand_dims(np.arange(rows), 1)\n"
        "    at = (d > 0).astype(np.int64) * 4 + np.minimum(np.abs(d), 4)\n    return x + np.expand_dims(t[at].transpose(2, 0, 1), 0)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= 8 * rows * cols) return;\n  int d = i % cols - i / cols % rows;\n"
        "  y[i] = x[i] + t[((d > 0) * 4 + min(abs(d), 4)) * 4 + i / cols / rows % 4];", "cdiv(8 * rows * cols, block)",
    ),
    "held at the edges": (
        MATRIX, "def reference(x, cols):\n    at = np.arange(cols)\n    return x[:, np.minimum(at + 1, cols - 1)] - x[:, np.maximum(at - 1, 0)]",
        f"{ITEM}  y[i] = x[r * cols + min(c + 1, cols - 1)] - x[r * cols + max(c - 1, 0)];", BY_ITEM,
    ),
    "nearest upsampling": (
        {"x": "in float32[3, rows, cols] ~ normal", "y": "out float32[3, 2 * rows, 2 * cols]", **INTS},
        "def reference(x, rows, cols):\n    return x[:, np.arange(2 * rows) // 2, :][:, :, np.arange(2 * cols) // 2]",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 12 * rows * cols) return;
  int c = i % (2 * cols), r = i / (2 * cols) % (2 * rows), k = i / (4 * rows * cols);
  y[i] = x[(k * rows + r / 2) * cols + c / 2];""", "cdiv(12 * rows * cols, block)",
    ),
    "columns repeated": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows, 3 * cols]", **INTS}, "np.repeat(x, 3, axis=1)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 3 * rows * cols) return;
  y[i] = x[i / 3];""", "cdiv(3 * rows * cols, block)",
    ),
    "a table of a table": (
        {"t": "in float32[19] ~ normal", "m": "in int32[cols] ~ integers(0, 19)", "k": "in int32[rows] ~ integers(0, cols)", "y": "out float32[rows]", **INTS},
        "t[m[k]]", "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < rows) y[i] = t[m[k[i]]];", "cdiv(rows, block)",
    ),
    "bytes through a table": (
        {"t": "in float32[256] ~ normal", "k": "in uint8[rows, cols]", "y": "out float32[rows, cols]", **INTS}, "t[k]",
        f"{ITEM}  y[i] = t[k[i]];", BY_ITEM,
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_elements_by_number_are_right(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid = CASES[name]
    positive = 'require = ["cols > 0", "rows > 0"]'
    kernel, _ = make(args, reference, body=body, grid=grid, sizes=SIZES, more=positive)
    assert_judged_right(session, kernel)


def test_numbers_that_differ_within_a_pack_are_computed_for_each_element(make: Any, tmp_path: Path) -> None:
    args, reference, body, grid = CASES["a bias by the distance of row and column"]
    kernel, contract = make(args, reference, body=body, grid=grid, sizes=SIZES)
    found = {one.schedule: one for one in kernels_for(trace(contract, tmp_path), kernel, contract)}
    text = found["permutation-packs"].helpers
    loop = text.index("for (int j = 0;")
    assert re.search(r"\bj\b", text[loop:])
    assert not re.search(r"\bj\b", text[:loop])


def test_one_part_of_pairs_has_a_schedule(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols, 2]", "y": "out float32[rows, cols]", **INTS}
    assert "interleaved" in schedules_for(*make(args, "np.log1p(x[:, :, 0])"), tmp_path)


REFUSED = {
    "np.roll(x[:, k - 5], 1, axis=1)": "beside parts of arrays",
    "np.cumsum(np.cumsum(x, axis=1), axis=0) * x": "scans along different axes",
}
STAGED = {
    "x[:, k] - x[:, k].max(axis=1, keepdims=True)": "staged-block",
    "np.cumsum(x[:, k], axis=1)": "sweeps",
    "np.cumsum(x, axis=1).max(axis=1, keepdims=True) + x": "staged-block",
    "np.cumsum(x, axis=1) + np.cumsum(x[:, ::-1], axis=1)[:, ::-1]": "sweeps",
}


@pytest.mark.parametrize("reference", REFUSED)
def test_mixtures_without_a_schedule_are_refused_with_the_reason(reference: str, make: Any, tmp_path: Any) -> None:
    kernel, contract = make({**MATRIX, "k": "in int32[cols] ~ integers(0, cols)"}, reference)
    with pytest.raises(Refused, match=REFUSED[reference]):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


@pytest.mark.parametrize("reference", STAGED)
def test_mixtures_are_stages_of_a_block_or_loops(reference: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = make({**MATRIX, "k": "in int32[cols] ~ integers(0, cols)"}, reference)
    assert schedules_for(kernel, contract, tmp_path) == [STAGED[reference]]


@pytest.mark.parametrize("table", ["t", "t * 2"])
def test_a_total_of_elements_at_computed_numbers_is_refused_with_the_reason_or_written(
    table: str, make: Any, tmp_path: Path
) -> None:
    arrays = {"t": "in float32[5]", "k": "in int32[rows] ~ integers(0, 5)", "s": "in float32[1]", "y": "out float32[1]", **INTS}  # fmt: skip
    reference = f"(s[0] / (({table})[np.where(k != 3, k, 0)] * (k != 3).astype(np.float64)).sum()).reshape(1)"
    kernel, contract = make(arrays, reference)
    try:
        found = [one.schedule for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    except Refused as reason:
        found = [str(reason)]
    assert found
    assert all(found)
