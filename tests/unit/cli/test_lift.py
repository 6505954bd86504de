"""`kernelmate lift`: a reference read from a kernel's text, shown and written only after the kernel agreed with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kernelmate.source import load_kernel, parse_contract

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

Run = Callable[..., Result]

KERNEL = """\
// /// kernelmate
// sizes = [{ rows = 6, cols = 40 }, { rows = 3, cols = 7 }]  # small ones
// grid = "rows"
// block = 32
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows]"
// cols = "int32"
// ///
__global__ void row_norm(const float* x, float* out, int cols) {
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 32) s += x[blockIdx.x * cols + c] * x[blockIdx.x * cols + c];
  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffff, s, d);
  if (threadIdx.x == 0) out[blockIdx.x] = sqrtf(s);
}
"""


@pytest.fixture
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with the kernel, a cache and a history of its own."""
    (folder / "norm.cu").write_text(KERNEL)
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(folder / ".cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / ".data"))
    return folder


def test_the_function_and_the_contracts_line_are_shown_and_nothing_is_written(there: Path, run: Run) -> None:
    shown = run("lift", "norm.cu", "--backend", "emulator")
    assert shown.exit_code == 0
    assert "def row_norm(x):" in shown.stdout
    assert 'reference = "reference.py:row_norm"' in shown.stdout
    assert "agrees with row_norm in all" in shown.output
    assert (there / "norm.cu").read_text() == KERNEL
    assert not (there / "reference.py").exists()


def test_write_adds_the_function_and_one_line_of_the_contract(there: Path, run: Run) -> None:
    (there / "reference.py").write_text('"""Mine."""\n\nimport math\n\n\ndef half():\n    return math.pi / 2\n')
    assert run("lift", "norm.cu", "--write", "--backend", "emulator").exit_code == 0
    line = '// reference = "reference.py:row_norm"\n'
    assert (there / "norm.cu").read_text() == KERNEL.replace("// block = 32\n", f"// block = 32\n{line}")
    held = (there / "reference.py").read_text()
    assert "import math\nimport numpy as np\n" in held
    assert held.index("def half") < held.index("def row_norm")
    assert run("bench", "norm.cu", "--backend", "emulator").exit_code == 0
    contract = parse_contract(load_kernel("norm.cu"))
    assert contract is not None
    assert contract.reference_kind == "function"


def test_an_existing_function_is_never_overwritten(there: Path, run: Run) -> None:
    (there / "reference.py").write_text("def row_norm(x):\n    return x\n")
    refused = run("lift", "norm.cu", "--write", "--backend", "emulator")
    assert refused.exit_code == 2
    assert "There is a row_norm already" in refused.stderr
    assert (there / "reference.py").read_text() == "def row_norm(x):\n    return x\n"
    assert (there / "norm.cu").read_text() == KERNEL


def test_a_kernel_that_is_not_lifted_is_told_with_its_line(there: Path, run: Run) -> None:
    (there / "norm.cu").write_text(KERNEL.replace("sqrtf(s)", "j0f(s)"))
    told = run("lift", "norm.cu", "--write", "--backend", "emulator")
    assert told.exit_code == 1
    assert "norm.cu:14: row_norm is not lifted: the function `j0f` is not known." in told.stdout
    assert not (there / "reference.py").exists()


def test_json_holds_the_function_or_the_reason(there: Path, run: Run) -> None:
    lifted = json.loads(run("lift", "norm.cu", "--json", "--backend", "emulator").stdout)["lifted"]
    assert lifted["function"].startswith("def row_norm(x):")
    assert lifted["reason"] is None
    (there / "norm.cu").write_text(KERNEL.replace("sqrtf(s)", "j0f(s)"))
    lifted = json.loads(run("lift", "norm.cu", "--json", "--backend", "emulator").stdout)["lifted"]
    assert lifted["function"] is None
    assert lifted["line"] == 14
