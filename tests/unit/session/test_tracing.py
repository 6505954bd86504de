"""New kernels are written from the text of a kernel whose reference cannot be traced, and judged with that reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Optimization
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.suggest.synthesis import Synthesis

KERNEL = """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 96 }, { rows = 3, cols = 7 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, block)"
// block = 64
// reference = "reference.py:row_sums"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_sums(const float *x, float *y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0;
    for (int c = 0; c < cols; ++c) sum += x[r * cols + c] * x[r * cols + c];
    y[r] = SUM;
}
"""
UNTRACED = """\
import numpy as np


def row_sums(x):
    return np.array([sum(float(value) ** 2 for value in row) for row in x])
"""
IN_TORCH = """\
import torch


def row_sums(x):
    return torch.square(x).sum(dim=1)
"""


def searched(folder: Path, reference: str, total: str) -> Optimization:
    (folder / "reference.py").write_text(reference)
    (folder / "kernel.cu").write_text(KERNEL.replace("SUM", total))
    with Session(load_settings(seed=7, backend="emulator", history=False)) as session:
        return session.optimize(load_kernel(folder / "kernel.cu"), "make it faster", suggesters=(Synthesis(),))


def test_new_kernels_are_written_from_what_the_kernel_computes(tmp_path: Path) -> None:
    found = searched(tmp_path, UNTRACED, "sum")
    assert found.candidates, found.notes
    assert all(one.candidate.author.startswith("synthesis:rows-") for one in found.candidates)
    assert all(one.verdict.correct for one in found.candidates)
    assert all(one.candidate.why.startswith("Written from the kernel: ") for one in found.candidates)
    assert any(one.startswith("New kernels were written from what the kernel computes.") for one in found.notes)


def test_new_kernels_are_written_from_functions_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = searched(tmp_path, IN_TORCH, "sum")
    assert found.candidates, found.notes
    assert all(one.verdict.correct for one in found.candidates)
    assert all(one.candidate.why.startswith("Written from the reference: ") for one in found.candidates)


def test_a_kernel_that_cannot_be_read_either_leaves_the_first_reason(tmp_path: Path) -> None:
    found = searched(tmp_path, UNTRACED, "__int_as_float(__float_as_int(sum))")
    assert not found.candidates
    (note,) = (one for one in found.notes if "cannot be traced" in one)
    assert note.startswith("No kernel was written from the reference. reference.py:5: ")
