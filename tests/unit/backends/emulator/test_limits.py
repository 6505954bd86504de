"""Launches beyond what the emulator takes on: finished, or refused with the limit, and never left hanging."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends import processes
from kernelmate.backends.base import EmulationTooLarge

Kernels = Callable[..., Any]
COPY = """__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 0 && i < n) y[i] = x[i];
}"""
TURNS = """__global__ void k(float* y, int turns) {
  float v = y[threadIdx.x];
  for (int i = 0; i < turns; ++i) v = v > 1e6f ? 0.0f : v * 1.0001f + 0.5f;
  y[threadIdx.x] = v;
}"""
SHARED = """extern __shared__ float s[];
__global__ void k(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = s[n - 1 - i];
}"""


def arrays(n: int) -> list[Any]:
    return [("x", np.ones(n, np.float32)), ("y", np.zeros(n, np.float32)), np.int32(n)]


@pytest.mark.parametrize("threads", [1, 32, 256])
@pytest.mark.parametrize("check", [True, False])
def test_the_largest_grid_is_refused_at_once_with_the_limit(cuda: Kernels, run_cuda: Kernels, threads, check) -> None:
    with pytest.raises(EmulationTooLarge, match=r"2147483647 blocks.*over 20000000000") as refused:
        run_cuda(cuda(COPY), *arrays(1000), grid=(2**31 - 1,), block=(threads,), check=check)
    assert refused.value.limit == 20_000_000_000


def test_a_large_grid_of_a_small_kernel_is_not_refused(cuda: Kernels, run_cuda: Kernels) -> None:
    done = run_cuda(cuda(COPY), *arrays(1000), grid=(40_000,), block=(64,))
    assert done.findings == ()
    assert done.arrays["y"].all()


def test_a_thread_that_takes_too_many_instructions_is_a_hang_and_all_threads_together_a_refusal(
    cuda: Kernels, run_cuda: Kernels
) -> None:
    code, start = cuda(TURNS), ("y", np.ones(32, np.float32))
    (finding,) = run_cuda(code, start, np.int32(10**9), step_limit=200_000).findings
    assert finding.code == "hang"
    assert "200000" in finding.message
    with pytest.raises(EmulationTooLarge, match="over 1000000 thread-instructions"):
        run_cuda(code, start, np.int32(10**9), total_limit=1_000_000)


@pytest.mark.slow
def test_a_thread_may_take_a_million_instructions(cuda: Kernels, run_cuda: Kernels) -> None:
    done = run_cuda(cuda(TURNS), ("y", np.ones(32, np.float32)), np.int32(300_000))
    assert done.findings == ()
    assert done.longest_thread > 1_000_000


def test_two_hundred_kilobytes_of_shared_memory_are_watched(cuda: Kernels, run_cuda: Kernels) -> None:
    n = 51_200
    x = np.arange(n, dtype=np.float32)
    code = cuda(SHARED)
    done = run_cuda(
        code, ("x", x), ("y", np.zeros(2 * n, np.float32)), np.int32(n), grid=(2,), block=(256,), shared=4 * n
    )
    assert done.findings == ()
    assert np.array_equal(done.arrays["y"], np.tile(x[::-1], 2))
    broken = run_cuda(
        cuda(SHARED.replace("__syncthreads();", "")), ("x", x), ("y", np.zeros(n, np.float32)), np.int32(n),
        block=(256,), shared=4 * n,
    )  # fmt: skip
    assert [finding.code for finding in broken.findings] == ["shared-race"]


def test_what_there_is_no_memory_for_is_refused_before_it_is_taken(
    cuda: Kernels, run_cuda: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_of_system", lambda: 100 << 20)
    with pytest.raises(EmulationTooLarge, match=r"MiB of memory to be emulated, and 100 MiB are free\.") as refused:
        run_cuda(cuda(COPY), *arrays(16 << 20))
    assert refused.value.limit == 100 << 20
    assert run_cuda(cuda(COPY), *arrays(1000), grid=(4,), block=(256,)).findings == ()


def test_free_memory_is_read_from_the_system_or_left_open() -> None:
    left = processes.available_memory()
    assert left is None or left.size > 1 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_tightest_of_system_group_and_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"_of_system": 9 << 30, "_of_group": 7 << 30, "_of_process": 5 << 30}
    for name in sizes:
        monkeypatch.setattr(processes, name, lambda name=name: sizes[name])
    said = []
    for _ in sizes:
        left = processes.available_memory()
        assert left is not None
        said.append((left.size >> 30, left.limit))
        sizes[min((size, name) for name, size in sizes.items() if size)[1]] = 99 << 30
    assert said == [(5, "this process may take"), (7, "its control group leaves"), (9, "are free")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_limit_of_the_process_is_seen() -> None:
    code = """
import resource
from kernelmate.backends.processes import _of_process
assert _of_process() is None
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
assert 2 << 30 < _of_process() < 4 << 30
block = bytearray(1 << 30)
assert _of_process() < 3 << 30
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
