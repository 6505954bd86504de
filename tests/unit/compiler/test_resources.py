"""Resources read from a CUBIN, against the figures that ptxas printed when it made the file."""

from __future__ import annotations

import re

import pytest

from kernelmate.compiler.frames import CompileJob
from kernelmate.compiler.process import COMPILER
from kernelmate.compiler.resources import read_resources

KERNELS = {
    "plain": "__global__ void k(float* x) { x[threadIdx.x] *= 2; }",
    "shared": "__global__ void k(float* x) { __shared__ float t[777]; t[threadIdx.x] = x[0]; __syncthreads(); x[0] = t[5]; }",
    "dynamic": "extern __shared__ float t[]; __global__ void k(float* x) { t[threadIdx.x] = x[0]; __syncthreads(); x[0] = t[5]; }",
    "local": "__global__ void k(float* x, int n) { float t[50]; for (int i = 0; i < 50; i++) t[i] = x[i * n]; x[0] = t[n]; }",
    "bounds": "__global__ void __launch_bounds__(192) k(float* x) { x[threadIdx.x] = sqrtf(x[1]); }",
    "printf": '__global__ void k(float* x) { printf("%f", x[0]); }',
    "call": "__device__ __noinline__ float f(float a, int n) { float t[9]; t[n] = a; return t[n + 1]; }\n"
    "__global__ void k(float* x, int n) { float t[20]; t[n] = x[0]; x[0] = f(t[n + 2], n); }",
    "spills": "__global__ void __launch_bounds__(1024, 2) k(const float* x, float* y, int n) { float t[64];\n#pragma unroll\n"
    "for (int i = 0; i < 64; i++) t[i] = x[i * n];\n__syncthreads(); float s = 0;\n#pragma unroll\n"
    "for (int i = 0; i < 64; i++) s += t[i] * t[63 - i] * t[(i * 7) % 64]; y[0] = s; }",
    "double": "__global__ void k(double* x) { x[0] = sin(x[1]) / x[2]; }",
}  # fmt: skip
LIMITS = {"bounds": 192}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_it_agrees_with_ptxas(name: str, arch: str) -> None:
    options = (f"--gpu-architecture={arch}", "--ptxas-options=--verbose", "--std=c++17")
    product = COMPILER.compile(CompileJob(KERNELS[name], "kernel.cu", (), options, ("k",)), 60)
    assert product.ok, product.log
    symbol = product.lowered[0]
    digits = arch.removeprefix("sm_").rstrip("a")
    found = read_resources(product.cubin, symbol, product.log, (int(digits[:-1]), int(digits[-1])))
    part = product.log[product.log.index(f"Compiling entry function '{symbol}'") :]
    used = re.search(r"Used (\d+) registers[^\n]*", part)
    assert found.registers == int(used[1])
    shared = re.search(r"(\d+) bytes smem", used[0])
    assert found.shared_bytes == (int(shared[1]) if shared else 0)
    stack = re.search(r"(\d+) bytes cumulative stack size", used[0])
    frame = re.search(rf"Function properties for {symbol}\n\D*(\d+) bytes stack frame, (\d+)\D+(\d+)", part)
    assert found.local_bytes == max(int(frame[1]), int(stack[1]) if stack else 0)
    assert found.spill_bytes == int(frame[2]) + int(frame[3])
    # An SM of sm_120 holds one such block only, so there nothing has to be spilled for a second.
    assert (found.spill_bytes > 0) == (name == "spills" and arch != "sm_120")
    assert found.max_threads == LIMITS.get(name, 1024)
    assert found.code_bytes % 16 == 0
    assert found.dynamic_shared_bytes == 0


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="no CUBIN"):
        read_resources(b"\x7fELF\x01", "k", "", (9, 0))
