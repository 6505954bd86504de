"""Names and comments of sums and extremes, which the kernel in another's place keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.records import Kernel
from kernelmate.source import apply_edits, load_kernel
from kernelmate.suggest.accumulators import accumulators
from kernelmate.suggest.replacement import with_kept_comments

OLD = """__global__ void loss(const float* x, float* y, int n) {
    // maximum for numerical stability
    float maxval = -INFINITY;
    for (int v = 0; v < n; v++) {
        if (x[v] > maxval) {
            maxval = x[v];
        }
    }
    // one thread adds all of them
    float total = 0.0f;
    for (int v = 0; v < n; v++) {
        total += expf(x[v] - maxval);
    }
    y[0] = logf(total) + maxval;
}
"""
NEW = """__global__ void loss(const float* x, float* y, int n) {
    float row_max = -INFINITY;
    for (int i = threadIdx.x; i < n; i += 32) {
        row_max = fmaxf(row_max, x[i]);
    }
    row_max = warp_max(row_max);

    float row_sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 32) {
        row_sum += expf(x[i] - row_max);
    }
    row_sum = warp_sum(row_sum);
    y[0] = logf(row_sum) + row_max;
}
"""


def kernels(folder: Path, old: str, new: str) -> tuple[Kernel, Kernel]:
    path = folder / "loss.cu"
    path.write_text(old)
    kernel = load_kernel(str(path))
    return kernel, apply_edits(kernel, [(0, len(old), new)])


def test_accumulators_keep_their_names_and_the_comments_that_stay_true(tmp_path: Path) -> None:
    text = with_kept_comments(*kernels(tmp_path, OLD, NEW)).unit.text
    assert "    // maximum for numerical stability\n    float maxval = -INFINITY;\n" in text
    assert "maxval = fmaxf(maxval, x[i]);" in text
    assert "    y[0] = logf(total) + maxval;\n" in text
    assert "one thread adds" not in text
    assert "row_" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total", "int total = n;\n    float row_sum"),
        ("maxval = -INFINITY;", "maxval = -INFINITY;\n    float other = 0.0f;\n    other += x[0];"),
    ],
    ids=["used otherwise", "other kinds"],
)
def test_other_names_stay(old: str, new: str, tmp_path: Path) -> None:
    changed = NEW.replace("float row_sum", new) if old == "total" else NEW
    text = with_kept_comments(*kernels(tmp_path, OLD if old == "total" else OLD.replace(old, new), changed)).unit.text
    assert "row_sum += expf(" in text


def test_sums_and_extremes_are_told_apart() -> None:
    assert [one.kind for one in accumulators(OLD, 0, len(OLD))] == ["max", "sum"]
    assert [one.name for one in accumulators(NEW, 0, len(NEW))] == ["row_max", "row_sum"]
