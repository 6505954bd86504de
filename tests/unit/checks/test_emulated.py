"""The judge over the real compiler and the emulator, on a row sum and changes of it."""

from __future__ import annotations

import pytest

from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.judge import judge
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.errors import LaunchTooLarge
from kernelmate.records import CompileOptions, JudgeTask, Version
from kernelmate.source import contract_for, find_kernels, text_unit

HEAD = """// /// kernelmate
// sizes = [{ rows = 8, cols = 320 }, { rows = 3, cols = 37 }]
// grid = "rows"
// block = 64
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
"""
KERNEL = """#include <cuda_fp16.h>
__global__ void rowsum(const float* x, float* y, int cols) {
  __shared__ float scratch[64];
  const float* in = x + (size_t)blockIdx.x * cols;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 64) sum += in[c];
  scratch[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = scratch[0];
}
"""
LOOP = "for (int c = threadIdx.x; c < cols; c += 64) sum += in[c];"
STORE = "if (threadIdx.x == 0) y[blockIdx.x] = scratch[0];"


def version(text: str, head: str = HEAD) -> Version:
    kernel = find_kernels(text_unit(head + text, "rowsum.cu"))[0]
    contract = contract_for(kernel)
    compiled = compile_kernel(
        kernel, contract.options, instance=None, target=find_target(None), options=CompileOptions()
    )
    assert compiled.ok, compiled.diagnostics
    return Version(compiled, contract, kernel.unit)


@pytest.fixture(scope="module")
def baseline() -> Version:
    return version(KERNEL)


def judged(candidate, baseline, tmp_path):
    task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(tmp_path))
    return judge(task, EmulatorBackend(), lambda *_: None, lambda *_: None)


def test_the_kernel_itself_is_right_and_counted(baseline, tmp_path) -> None:
    judgement = judged(baseline, None, tmp_path)
    assert judgement.correct is True
    assert judgement.findings == ()
    assert [m.launch.blocks for m in judgement.metrics] == [8, 3]
    assert all(m.counters.global_load_sectors > 0 for m in judgement.metrics)


def test_a_launch_beyond_the_limit_is_refused_by_name(baseline, tmp_path) -> None:
    task = JudgeTask("emulator", find_target(None), baseline, None, None, (), 7, str(tmp_path), instruction_limit=1000)
    with pytest.raises(LaunchTooLarge, match="over 1000, the emulator's limit for one launch"):
        judge(task, EmulatorBackend(), lambda *_: None, lambda *_: None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LOOP, "double wide = 0; for (int c = threadIdx.x; c < cols; c += 64) wide += in[c]; sum = (float)wide;"),
        (STORE, "if (threadIdx.x < 1) { y[blockIdx.x] = 0.0f; y[blockIdx.x] = scratch[0]; }"),
    ],
)
def test_right_changes_pass(baseline, tmp_path, old, new) -> None:
    judgement = judged(version(KERNEL.replace(old, new)), baseline, tmp_path)
    assert judgement.correct is True
    assert judgement.findings == ()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (STORE, "", "stale-output"),
        (STORE, "if (threadIdx.x == 0) y[blockIdx.x] = 1.0f;", "constant-output"),
        (LOOP, "for (int c = threadIdx.x; c < cols / 64 * 64; c += 64) sum += in[c];", "wrong-at-size"),
        (LOOP, LOOP.replace("c < cols", "c <= cols"), "out-of-bounds-read"),
        (LOOP, LOOP.replace("in[c]", "2 * in[c]"), "wrong-values"),
        (
            LOOP,
            "__half h = 0; for (int c = threadIdx.x; c < cols; c += 64) h = __hadd(h, __float2half(in[c]));"
            " sum = __half2float(h);",
            "precision-loss",
        ),
        (STORE, STORE + " if (threadIdx.x == 0 && cols > 0) ((float*)x)[0] = 0.0f;", "input-mutated"),
    ],
    ids=lambda value: value if isinstance(value, str) and "-" in value and " " not in value else "",
)
def test_wrong_changes_have_their_codes(baseline, tmp_path, old, new, code) -> None:
    judgement = judged(version(KERNEL.replace(old, new)), baseline, tmp_path)
    assert judgement.correct is False
    assert judgement.findings[0].code == code


INTEGERS = """// /// kernelmate
// sizes = [{ n = 300 }, { n = 7 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "REFERENCE"
// [args]
// x = "in int32[n]"
// y = "out int32[n]"
// n = "int32"
// ///
__global__ void work(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = VALUE;
}
"""


def alone(reference: str, value: str) -> Version:
    return version(INTEGERS.replace("REFERENCE", reference).replace("VALUE", value), "")


def test_a_kernel_that_is_right_for_small_integers_alone_is_warned_of(tmp_path) -> None:
    judgement = judged(alone("np.abs(x)", "(short)(x[i] < 0 ? -x[i] : x[i])"), None, tmp_path)
    assert judgement.correct is True
    ((severity, message),) = ((one.severity, one.message) for one in judgement.findings)
    assert severity == "warning"
    assert "over their whole range" in message
    assert "declare those that do" in message


@pytest.mark.parametrize(
    ("reference", "value"),
    [("x ^ (x >> 3)", "x[i] ^ (x[i] >> 3)"), ("x[x % n]", "x[x[i] % n]"), ("x[np.minimum(x, n - 1)]", "x[min(x[i], n - 1)]")],
    ids=["bits", "remainders as positions", "positions"],
)  # fmt: skip
def test_a_right_kernel_of_integers_has_no_warning(tmp_path, reference, value) -> None:
    judgement = judged(alone(reference, value), None, tmp_path)
    assert judgement.correct is True
    assert judgement.findings == ()


def test_the_largest_of_a_row_of_integers_tells_right_from_wrong(tmp_path) -> None:
    head = HEAD.replace("float32", "int32").replace("x.sum(axis=1)", "x.max(axis=1)")
    body = (
        "__global__ void rowmax(const int* x, int* y, int cols) {\n  if (threadIdx.x) return;\n"
        "  int best = x[(size_t)blockIdx.x * cols];\n"
        "  for (int c = 1; c < cols; c++) best = max(best, x[(size_t)blockIdx.x * cols + c]);\n  y[blockIdx.x] = best;\n}\n"
    )
    judgement = judged(version(body, head), None, tmp_path)
    assert judgement.correct is True
    assert not any(case.degenerate for case in judgement.cases if case.origin == "contract")
