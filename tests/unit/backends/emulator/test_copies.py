"""`cp.async`: what is copied, what is filled up with zeros, and who may use it when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Kernels = Callable[..., Any]

COPY = """__global__ void k(const unsigned char* x, unsigned char* y) {{
  __shared__ alignas(16) unsigned char row[32 * {size}];
  const unsigned to = (unsigned)__cvta_generic_to_shared(row + threadIdx.x * {size});
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}{taken};" ::"r"(to), "l"(x + threadIdx.x * {size}){operand} : "memory");
  {waits}
  for (int i = 0; i < {size}; ++i) y[threadIdx.x * {size} + i] = row[({reads}) * {size} + i];
}}"""
WAIT_ALL = 'asm volatile("cp.async.wait_all;" ::: "memory");'
COMMIT = 'asm volatile("cp.async.commit_group;" ::: "memory");'
WAIT = 'asm volatile("cp.async.wait_group {left};" ::: "memory");'


def copied(
    cuda: Kernels, run_cuda: Kernels, size: int, *, waits: str = WAIT_ALL, taken: str = "", reads: str = "threadIdx.x"
) -> Any:
    operand = f', "r"({taken})' if taken else ""
    text = COPY.format(
        size=size, cache="cg" if size == 16 else "ca", taken=", %2" if taken else "", operand=operand, waits=waits, reads=reads
    )  # fmt: skip
    x = np.random.default_rng(size).integers(1, 256, 32 * size, dtype=np.uint8)
    return x, run_cuda(cuda(text), ("x", x), ("y", np.zeros(32 * size, np.uint8)))


@pytest.mark.instruction("cp")
@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_copy_that_was_waited_for_holds_the_bytes(cuda: Kernels, run_cuda: Kernels, size: int) -> None:
    x, done = copied(cuda, run_cuda, size)
    assert done.findings == ()
    assert np.array_equal(done.arrays["y"], x)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_bytes_beyond_the_source_size_are_zeros_and_are_not_read(cuda: Kernels, run_cuda: Kernels, size: int) -> None:
    x, done = copied(cuda, run_cuda, size, taken=f"threadIdx.x % {size + 1}")
    want = x.reshape(32, size).copy()
    for thread in range(32):
        want[thread, thread % (size + 1) :] = 0
    assert done.findings == ()
    assert np.array_equal(done.arrays["y"].reshape(32, size), want)


@pytest.mark.parametrize(
    ("waits", "reads", "raced"),
    [
        (COMMIT, "threadIdx.x", True),
        ("", "threadIdx.x", True),
        (COMMIT + WAIT.format(left=1), "threadIdx.x", True),
        (COMMIT + WAIT.format(left=0), "threadIdx.x", False),
        (COMMIT + COMMIT + WAIT.format(left=1), "threadIdx.x", False),
        (WAIT_ALL, "31 - threadIdx.x", True),
        ("__syncthreads();" + WAIT_ALL, "31 - threadIdx.x", True),
        (WAIT_ALL + "__syncthreads();", "31 - threadIdx.x", False),
        (WAIT_ALL + "__syncwarp();", "31 - threadIdx.x", False),
    ],
)  # fmt: skip
def test_a_copy_is_there_for_its_thread_after_the_wait_and_for_others_after_a_barrier_too(
    cuda: Kernels, run_cuda: Kernels, waits: str, reads: str, raced: bool
) -> None:
    _, done = copied(cuda, run_cuda, 16, waits=waits, reads=reads)
    assert [finding.code for finding in done.findings] == ["shared-race"] * raced
    if raced:
        assert "wait for the copy" in done.findings[0].message


ACTIONS = (
    "COPY({slot}, threadIdx.x);", "COPY({slot}, 63 - threadIdx.x);", "if (threadIdx.x < 40) COPY({slot}, threadIdx.x);", COMMIT,
    WAIT.format(left=0), WAIT.format(left=1), WAIT_ALL, "__syncthreads();", "__syncthreads();", "total += rows[{slot}][threadIdx.x];",
    "total += rows[{slot}][63 - threadIdx.x];", "rows[{slot}][threadIdx.x] = total;", "rows[{slot}][threadIdx.x ^ 1] = total;",
    "if (threadIdx.x > 50) total += rows[{slot}][threadIdx.x];", "if (threadIdx.x < 32) asm volatile(\"cp.async.wait_all;\" ::: \"memory\");",
)  # fmt: skip
ORDERED = (
    ("COPY(0, threadIdx.x);", WAIT_ALL, "__syncthreads();"),
    ("COPY(1, threadIdx.x);", COMMIT, WAIT.format(left=0), "__syncthreads();"),
    ("rows[0][threadIdx.x] = 1; rows[1][threadIdx.x] = 2;", "__syncthreads();"),
)
BESIDE_COPIES = """#define COPY(slot, place) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: \\
  "r"((unsigned)__cvta_generic_to_shared(&rows[slot][place])), "l"(x + place) : "memory")
__global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned rows[2][64];
  unsigned total = 0;
  {lines}
  y[threadIdx.x] = total;
}"""


@pytest.mark.parametrize("seed", range(24))
def test_native_checks_of_copies_find_what_the_exact_ones_find(
    cuda: Kernels, run_cuda: Kernels, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    drawn = random.choice(len(ACTIONS), 7)
    begun = [*ORDERED[seed % 3]]
    lines = begun + [ACTIONS[one].replace("{slot}", str(random.integers(2))) for one in drawn]
    text = BESIDE_COPIES.replace("{lines}", "\n  ".join(lines))
    code, x = cuda(text), np.arange(64, dtype=np.uint32)
    found = []
    for mode in ("never", "always"):
        monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", mode)
        done = run_cuda(code, ("x", x), ("y", np.zeros(64, np.uint32)), block=(64,))
        found.append(([(finding.code, finding.message) for finding in done.findings], done.arrays["y"].tolist()))
    assert found[0] == found[1], text
