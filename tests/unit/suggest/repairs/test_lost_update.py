from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.lost_update import REPAIR

COUNTS = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 64 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "bins + np.bincount(keys, minlength=16)"
// deterministic = true
// [args]
// keys = "in int32[n] ~ integers(0, 16)"
// bins = "inout int32[16] ~ zeros"
// n = "int32"
// ///
__global__ void counts(const int* keys, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) UPDATE;
}
"""


@pytest.mark.parametrize(
    "update",
    [
        "bins[keys[i]] += 1",
        "bins[keys[i]]++",
        "bins[keys[i]] = bins[keys[i]] + 1",
        "atomicAdd_block(&bins[keys[i]], 1)",
    ],
)
def test_an_update_by_many_threads_becomes_atomic(mended, reference, update: str) -> None:
    best = mended(reference(COUNTS.replace("UPDATE", update)), REPAIR)
    assert "if (i < n) atomicAdd(&bins[keys[i]], 1);" in best.candidate.kernel.source


@pytest.fixture
def reference(tmp_path):
    """The contract with its reference in a file beside it."""
    (tmp_path / "reference.py").write_text(
        "import numpy as np\ndef counts(keys, bins):\n    return bins + np.bincount(keys.astype(int), minlength=16)\n"
    )
    return lambda text: text.replace("bins + np.bincount(keys, minlength=16)", "reference.py:counts")
