"""Reductions of a product's rows: right by the judge for extremes, positions, sums and log-sum-exp, and the product is not stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right, schedules_for

SIZES = "{ m = 70, n = 81, d = 37 }, { m = 33, n = 32, d = 36 }, { m = 1, n = 1, d = 1 }"
POINTS = {"x": "in float32[m, d] ~ normal", "c": "in float32[n, d] ~ normal"}
LENGTHS = {"m": "int32", "n": "int32", "d": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= m) return;\n"
DISTANCE = "    float s = 0;\n    for (int k = 0; k < d; ++k) s += (x[r * d + k] - c[j * d + k]) * (x[r * d + k] - c[j * d + k]);\n"
DOT = "    float s = 0;\n    for (int k = 0; k < d; ++k) s += x[r * d + k] * c[j * d + k];\n"
NEAREST = f"  float best = INFINITY;\n  int at = 0;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE}    if (s < best) best = s, at = j;\n  }}\n"
LARGEST = f"  float best = -INFINITY;\n  for (int j = 0; j < n; ++j) {{\n{DOT}    best = fmaxf(best, s@);\n  }}\n"
EXPONENTIALS = f"  float top = -INFINITY, e = 0;\n  for (int j = 0; j < n; ++j) {{\n{DOT}    top = fmaxf(top, s);\n  }}\n  for (int j = 0; j < n; ++j) {{\n{DOT}    e += expf(s - top);\n  }}\n"

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "the nearest of each": (
        {"y": "out int32[m]"}, "((x[:, None] - c[None]) ** 2).sum(axis=2).argmin(axis=1)", f"{NEAREST}  y[r] = at;",
    ),
    "the nearest by the expanded form, and its distance": (
        {"y": "out int32[m]", "z": "out float32[m]"},
        "def reference(x, c):\n    e = (x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1)\n    return e.argmin(axis=1), np.sqrt(e.min(axis=1))",
        f"{NEAREST}  y[r] = at;\n  z[r] = sqrtf(best);",
    ),
    "the largest product with a bias of each column": (
        {"b": "in float32[n] ~ normal", "y": "out float32[m]"}, "(x @ c.T + b).max(axis=1)", f"{LARGEST.replace('@', ' + b[j]')}  y[r] = best;",
    ),
    "the largest product by row and column": (
        {"b": "in float32[m] ~ uniform(0.5, 2)", "y": "inout float32[m]"}, "y + (x @ c.T / b[:, None]).max(axis=1) * 2",
        f"{LARGEST.replace('@', ' / b[r]')}  y[r] += best * 2;",
    ),
    "log-sum-exp": (
        {"y": "out float32[m]"},
        "def reference(x, c):\n    s = x @ c.T\n    t = s.max(axis=1, keepdims=True)\n    return np.log(np.exp(s - t).sum(axis=1)) + t[:, 0]",
        f"{EXPONENTIALS}  y[r] = logf(e) + top;",
    ),
    "the loss of a classifier": (
        {"t": "in int32[m] ~ integers(0, n)", "y": "out float32[m]"},
        "def reference(x, c, t):\n    s = x @ c.T\n    l = s.max(axis=1, keepdims=True)\n    return np.log(np.exp(s - l).sum(axis=1)) + l[:, 0] - s[np.arange(len(t)), t]",
        f"{EXPONENTIALS}  const int j = t[r];\n{DOT}  y[r] = logf(e) + top - s;",
    ),
    "the nearest code by bits": (
        {"x": "in uint32[m, d]", "c": "in uint32[n, d]", "y": "out int32[m]"}, "np.bitwise_count(x[:, None] ^ c[None]).sum(axis=-1).argmin(axis=1)",
        "  int best = 1 << 30, at = 0;\n  for (int j = 0; j < n; ++j) {\n    int s = 0;\n    for (int k = 0; k < d; ++k) s += __popc(x[r * d + k] ^ c[j * d + k]);\n    if (s < best) best = s, at = j;\n  }\n  y[r] = at;",
    ),
    "a kernel density": (
        {"y": "out float32[m]"}, "np.exp(-0.5 * ((x[:, None] - c[None]) ** 2).sum(-1) / d).mean(axis=1)",
        f"  float e = 0;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE}    e += expf(-0.5f * s / d);\n  }}\n  y[r] = e / n;",
    ),
    "differences by absolute value": (
        {"y": "out float32[m]"}, "np.abs(x[:, None] - c[None]).sum(-1).min(axis=1)",
        f"  float best = INFINITY;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE.replace('(x[r * d + k] - c[j * d + k]) * (x[r * d + k] - c[j * d + k])', 'fabsf(x[r * d + k] - c[j * d + k])')}    best = fminf(best, s);\n  }}\n  y[r] = best;",
    ),
    "by position": (
        {"y": "out float32[m]"}, "np.where(np.arange(n) % 2 == 1, x @ c.T, -9.0).max(axis=1)",
        f"  float best = -9;\n  for (int j = 1; j < n; j += 2) {{\n{DOT}    best = fmaxf(best, s);\n  }}\n  y[r] = best;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_rows_of_products_are_reduced_right(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(POINTS | args | LENGTHS, reference, body=ROW + body, grid="cdiv(m, block)", sizes=SIZES, more='require = ["n > 0", "d > 0", "m > 0"]')  # fmt: skip
    assert all(author.startswith("synthesis:reduced-products-") for author in assert_judged_right(session, kernel))


def test_bilinear_forms_are_right(make: Any, session: Session) -> None:
    args = {
        "x": "in float32[m, d] ~ normal",
        "a": "in float32[d, n] ~ normal",
        "z": "in float32[m, n] ~ normal",
        "y": "out float32[m]",
    }
    inner = "    for (int j = 0; j < n; ++j) s += x[r * d + k] * a[k * n + j] * z[r * n + j];\n"
    body = f"{ROW}  float s = 0;\n  for (int k = 0; k < d; ++k) {{\n{inner}  }}\n  y[r] = s;"
    kernel, _ = make(args | LENGTHS, "np.einsum('mk,kn,mn->m', x, a, z)", body=body, grid="cdiv(m, block)", sizes=SIZES)
    assert all(author.startswith("synthesis:reduced-products-") for author in assert_judged_right(session, kernel))


@pytest.mark.parametrize(
    ("reference", "schedules"),
    [
        ("(x @ c.T).prod(axis=1)", ["staged-block"]),
        ("(x @ c.T).max(axis=0)[:1] + x[:, 0]", []),
    ],
    ids=["a product of products", "along columns"],
)
def test_other_reductions_of_products_have_other_schedules_or_none(
    reference: str, schedules: list[str], make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(POINTS | {"y": "out float32[m]"} | LENGTHS, f"def reference(x, c):\n    return {reference}", grid="cdiv(m, block)", sizes=SIZES)  # fmt: skip
    assert schedules_for(kernel, contract, tmp_path) == schedules


def test_rows_of_batches_are_reduced_with_a_block_for_some_rows_of_one(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[b, m, d]", "c": "in float32[b, n, d]", "y": "out float32[b, m]", "b": "int32"} | LENGTHS
    sizes = "{ b = 3, m = 70, n = 81, d = 37 }, { b = 1, m = 1, n = 1, d = 1 }"
    kernel, contract = make(args, "np.einsum('bmd,bnd->bmn', x, c).max(axis=2)", grid="cdiv(m * b, block)", sizes=sizes)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert text.grid == ("cdiv(m, 32) * b",)
    assert "const int first_row = (blockIdx.x % tiles_down) * kTileM;" in text.definition
    assert "y[static_cast<size_t>(batch) * m + row] = row_max[i];" in text.definition


def test_two_passes_over_a_product_keep_it_in_shared_memory(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x, c):\n    s = x @ c.T\n    return (s - s.mean(axis=1, keepdims=True)).max(axis=1)"
    kernel, contract = make(POINTS | {"y": "out float32[m]"} | LENGTHS, reference, grid="cdiv(m, block)", sizes=SIZES)
    found = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert found.schedule.startswith("staged-rows-")
    assert "float* s = shared;" in found.definition


def test_tiles_are_no_deeper_than_the_coordinates_of_points(make: Any, tmp_path: Path, session: Session) -> None:
    args = {
        "x": "in float32[m, 3] ~ normal",
        "c": "in float32[n, 3] ~ normal",
        "y": "out int32[m]",
        "m": "int32",
        "n": "int32",
    }
    body = f"{ROW}{NEAREST}  y[r] = at;".replace("k < d", "k < 3").replace("* d", "* 3")
    kernel, contract = make(
        args, CASES["the nearest of each"][1], sizes="{ m = 70, n = 81 }, { m = 33, n = 32 }, { m = 1, n = 1 }",
        grid="cdiv(m, block)", body=body,
    )  # fmt: skip
    texts = [one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    assert all("kTileK = 4;" in one for one in texts[:2])
    assert_judged_right(session, kernel)
