"""A kernel beside PyTorch and cuBLAS on a real GPU: times of right results alone, in the same run, precision matched and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.records import Alternative, Kernel
from kernelmate.session import Session
from kernelmate.source import load_kernel

torch = pytest.importorskip("torch")
_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this build of PyTorch uses no GPU"),
]

SCALE = """// /// kernelmate
// sizes = [{ n = 1000003 }, { n = 5 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:scale"
// MORE
// [args]
// x = "DIRECTION float32[n]"
// n = "int32"
// ///
__global__ void scale(float* x, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) x[i] = 2 * x[i];
}
"""
MATMUL = """// /// kernelmate
// sizes = [{ m = 512, n = 384, k = 256 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "a @ b"
// [args]
// a = "in DTYPE[m, k]"
// b = "in DTYPE[k, n]"
// c = "out DTYPE[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
#include <cuda_fp16.h>
__global__ void matmul(const TYPE* a, const TYPE* b, TYPE* c, int m, int n, int k) {
  int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
  if (i >= m || j >= n) return;
  float s = 0;
  for (int p = 0; p < k; p++) s += (float)a[i * k + p] * (float)b[p * n + j];
  c[i * n + j] = (TYPE)s;
}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Kernel]:
    def written(text: str, reference: str = "") -> Kernel:
        (tmp_path / "reference.py").write_text(reference)
        (tmp_path / "kernel.cu").write_text(text)
        return load_kernel(tmp_path / "kernel.cu")

    return written


def timed(kernel: Kernel, *names: str) -> tuple[Alternative, ...]:
    with Session(load_settings(seed=11, backend="cuda", timeout_s=120, against=" ".join(names))) as session:
        (verdict,) = session.bench(kernel)
    assert verdict.correct, verdict.findings
    assert verdict.against is not None
    return verdict.against


def assert_timed(one: Alternative) -> None:
    assert one.why is None
    assert one.correct is True
    assert one.timing is not None
    assert one.kernel is not None
    assert one.speedup is not None
    assert one.timing.kind == one.kernel.kind == "measured"
    assert one.speedup.median == pytest.approx(one.timing.median_us / one.kernel.median_us, rel=0.1)


@pytest.mark.parametrize(("dtype", "type_"), [("float32", "float"), ("float16", "__half")])
def test_a_product_is_timed_beside_all_three_libraries(write: Callable[..., Kernel], dtype: str, type_: str) -> None:
    found = timed(write(MATMUL.replace("DTYPE", dtype).replace("TYPE", type_)), "torch", "compile", "cublas")
    assert [one.name for one in found] == ["torch", "compile", "cublas"]
    for one in found:
        assert_timed(one)
        assert one.precision == "TF32 off, 16-bit products summed in float32"


def test_a_kernel_that_changes_its_input_gets_it_back_before_each_call(write: Callable[..., Kernel]) -> None:
    kernel = write(SCALE.replace("DIRECTION", "inout").replace("// MORE\n", ""), "def scale(x):\n    return 2 * x\n")
    assert_timed(timed(kernel, "torch")[0])


WRONG = {
    "return 3 * x": "it computes something else: x differs",
    "return x.mul_(2)": None,
    "torch.cuda.synchronize(); return 2 * x": "cannot be captured",
    "torch.backends.cuda.matmul.allow_tf32 = True; return 2 * x": "changes the precision settings",
    "raise ValueError('not today')": "ValueError: not today",
}
"""Bodies of a user's function, and what is said of its time; None for one that is timed."""


@pytest.mark.parametrize("body", WRONG)
def test_a_function_of_the_contract_is_timed_if_it_is_right(write: Callable[..., Kernel], body: str) -> None:
    text = SCALE.replace("DIRECTION", "inout").replace("// MORE", '// torch = "reference.py:other"')
    reference = "def scale(x):\n    return 2 * x\n\ndef other(x):\n    import torch\n    " + body + "\n"
    (found,) = timed(write(text, reference), "torch")
    said = WRONG[body]
    if said is None:
        assert_timed(found)
        return
    assert found.why is not None
    assert said in found.why
    assert (found.timing, found.speedup) == (None, None)
