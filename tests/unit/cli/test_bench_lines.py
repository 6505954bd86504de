from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

KERNEL = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
"""


def test_lines_are_shown_with_their_text_and_counters(folder: Path, run: Callable[..., Any]) -> None:
    path = folder / "twice.cu"
    path.write_text(KERNEL)
    shown = run("bench", str(path), "--lines", "--backend", "emulator", "--size", "n=1000")
    assert shown.exit_code == 0, shown.output
    row = next(line for line in shown.stdout.splitlines() if "if (i" in line)
    assert row.split()[0] == "13"
    assert "sect/rq" in shown.stdout
