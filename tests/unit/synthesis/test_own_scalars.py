"""Written kernels read the scalars that callers pass, also where the reference has their values as numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right
from tests.unit.synthesis.test_own_text import contract

SIZES = "{ rows = 64, cols = 256 }, { rows = 5, cols = 37 }"
ROWS = "x: in float32[rows, cols]; y: out float32[rows, cols]; cols: int32; "
NORM = "x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)"


def rows(scalar: str, reference: str, head: str, body: str) -> str:
    return (
        contract(SIZES, ROWS + scalar, '"rows"', "1", reference)
        + f"__global__ void rows(const float* x, float* y, int cols, float {head}) {{\n"
        + "  x += blockIdx.x * cols;\n  y += blockIdx.x * cols;\n"
        + f"  {body}\n}}\n"
    )


NORMALIZED = (
    "float sum = 0.0f; for (int c = 0; c < cols; c++) sum += x[c] * x[c]; for (int c = 0; c < cols; c++) y[c] = {}"
)
SCALARS = {
    "number": (
        rows("eps: float32 = 1e-5", NORM, "eps", NORMALIZED.format("x[c] * rsqrtf(sum / cols + eps);")),
        "+ eps",
        "1e-",
    ),
    "reciprocal of a root of a size": (
        rows("scale: float32 = cols ** -0.5", "np.tanh(x / np.sqrt(cols))", "scale", "for (int c = 0; c < cols; c++) y[c] = tanhf(x[c] * scale);"),
        "* scale",
        "sqrt",
    ),
    "number that the kernel has itself": (
        rows("slope: float32 = 0.5", "np.where(x > 0.5, x, x * 0.5)", "slope", "for (int c = 0; c < cols; c++) y[c] = x[c] > 0.5f ? x[c] : x[c] * slope;"),
        "0.5f",
        "* slope",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "present", "absent"), SCALARS.values(), ids=SCALARS)
def test_a_scalar_takes_the_place_of_its_value(text: str, present: str, absent: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    kernel = load_kernel(str(path))
    found = contract_for(kernel)
    written = next(iter(kernels_for(trace(found, tmp_path), kernel, found)))
    code = written.definition + written.helpers
    assert present in code
    assert absent not in code


def test_kernels_with_scalars_in_place_of_numbers_are_right(session: Session, tmp_path: Path) -> None:
    for text in (text for name, (text, _, _) in SCALARS.items() if name != "number that the kernel has itself"):
        path = tmp_path / "kernel.cu"
        path.write_text(text)
        assert_judged_right(session, load_kernel(str(path)))
