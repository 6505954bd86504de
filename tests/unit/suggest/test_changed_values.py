"""The reason of a written kernel names NaN handling and double arithmetic that it changed."""

from __future__ import annotations

import pytest

from kernelmate.records import Kernel
from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest.changed_values import changed_values

KEPT = "NaN that the old kernel dropped in a maximum or minimum now reaches the result, as in the reference."
LOST = "NaN that the old kernel passed on through a maximum or minimum is dropped now."


def kernel(statement: str, above: str = "") -> Kernel:
    text = f"{above}__global__ void k(float* y, const float* x, float v) {{\n  float m = y[0];\n  {statement}\n  y[1] = m;\n}}\n"
    return next(one for one in find_kernels(text_unit(text)) if one.name == "k")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m = v > 0.0f ? v : 0.0f;", "m = v < 0.0f ? 0.0f : v;", KEPT),
        ("m = fmaxf(v, 0.0f);", "m = v < 0.0f ? 0.0f : v;", KEPT),
        ("if (x[0] > m) m = x[0];", "if (x[0] > m || isnan(x[0])) m = x[0];", KEPT),
        ("if (x[0] > m) { m = x[0]; y[2] = 1; }", "m = x[0] > m || isnan(x[0]) ? x[0] : m;", KEPT),
        ("m = v; if (m < 0.0f) m = 0.0f;", "m = fmaxf(v, 0.0f);", LOST),
        ("m = fmaxf(v, m);", "m = fmaxf(m, v);", ""),
        ("if (x[0] > m) m = x[0];", "m = fmaxf(m, x[0]);", ""),
        ("m = v < 0.0f ? 0.0f : v;", "m = v >= 0.0f ? v : v < 0.0f ? 0.0f : v;", ""),
        ("m = v > 0.0f ? 1.0f : 2.0f;", "m = v * 2.0f;", ""),
        ("m = max(3, 4) + v;", "m = v < 0.0f ? 0.0f : v;", ""),
    ],
)
def test_a_change_of_what_becomes_of_nan_is_said(old: str, new: str, said: str) -> None:
    assert changed_values(kernel(old), kernel(new), "").strip() == said


def test_helpers_of_the_written_kernel_count() -> None:
    helper = "__device__ float nan_max(float a, float b) {\n  return a > b || isnan(a) ? a : b;\n}\n"
    assert changed_values(kernel("m = fmaxf(m, v);"), kernel("m = nan_max(m, v);", helper), "").strip() == KEPT


@pytest.mark.parametrize(
    ("old", "new", "ptx", "said"),
    [
        ("m = 1.0 / v;", "m = 1.0f / v;", "div.rn.f64", "The double literal 1.0 made the old kernel compute in double; this one computes in float."),
        ("m = 0.5 * v + 2.0;", "m = 0.5f * v;", "add.f64", "The double literals 0.5, 2.0 made the old kernel compute in double; this one computes in float."),
        ("m = pow(v, 2);", "m = v * v;", "mul.f64", "The old kernel computed in double in part; this one computes in float."),
        ("m = 2.0;", "m = 2.0f;", "", ""),
        ("double s = v; m = s;", "double s = v; m = s;", "add.f64", ""),
    ],
)  # fmt: skip
def test_double_arithmetic_that_became_float_is_said(old: str, new: str, ptx: str, said: str) -> None:
    assert changed_values(kernel(old), kernel(new), ptx).strip() == said
