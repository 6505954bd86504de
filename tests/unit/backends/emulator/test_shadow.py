"""Index arithmetic that wraps, and arithmetic that is meant to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.records import Compiled

Cuda = Callable[..., Compiled]
Launch = Callable[..., RunResult]


def codes(result: RunResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_wrapping_that_ends_in_an_address_is_found(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(const float* x, float* y, int stride) {
    int i = (threadIdx.x + 1) * stride;
    y[threadIdx.x] = x[i];
}
"""
    x, y = ("x", np.zeros(1000, np.float32)), ("y", np.zeros(32, np.float32))
    assert not run_cuda(cuda(text), x, y, np.int32(5)).findings
    # 2**27 * 32 is 2**32: thread 31's index comes back to 0, which looks harmless; the others are out of bounds.
    result = run_cuda(cuda(text), x, y, np.int32(2**27))
    wrapped = [finding for finding in result.findings if finding.code == "index-overflow"]
    assert [(finding.line, finding.severity) for finding in wrapped] == [(4, "error")]
    assert 31 in range(wrapped[0].threads[0], 32)
    assert "index-overflow" not in codes(run_cuda(cuda(text), x, y, np.int32(2**27), check=False))


def test_only_the_lanes_that_wrap_are_named_even_where_the_wrapped_index_is_in_bounds(
    cuda: Cuda, run_cuda: Launch
) -> None:
    text = """
extern "C" __global__ void k(const char* x, char* y, int n) {
    int i = n * 4 * (int)(threadIdx.x / 31);
    y[threadIdx.x] = x[i];
}
"""
    result = run_cuda(cuda(text), ("x", np.zeros(8, np.int8)), ("y", np.zeros(32, np.int8)), np.int32(2**30))
    assert [(finding.code, finding.line, finding.threads) for finding in result.findings] == [
        ("index-overflow", 4, (31,))
    ]


@pytest.mark.parametrize(
    "index",
    [
        "(unsigned)(t * 2654435761u) >> 22",
        "(t * 1664525u + 1013904223u) % 1000u",
        "(t ^ (t * 0x9E3779B9u)) & 511u",
        "(unsigned)(((unsigned long long)(t * 2654435761u) * 1000u) >> 32)",
    ],
)
def test_hashes_wrap_on_purpose(index: str, cuda: Cuda, run_cuda: Launch) -> None:
    text = f"""
extern "C" __global__ void k(const float* x, float* y) {{
    unsigned t = threadIdx.x + 12345u;
    y[threadIdx.x] = x[{index}];
}}
"""
    assert not run_cuda(cuda(text), ("x", np.zeros(1024, np.float32)), ("y", np.zeros(32, np.float32))).findings


def test_a_wrapped_number_that_is_no_index_is_nobodys_business(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(unsigned* y, int n) {
    unsigned state = threadIdx.x;
    for (int i = 0; i < n; ++i) state = state * 1664525u + 1013904223u;
    y[threadIdx.x] = state;
}
"""
    assert not run_cuda(cuda(text), ("y", np.zeros(32, np.uint32)), np.int32(100)).findings


def test_unsigned_indices_that_pass_below_zero_and_come_back(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(const float* x, float* y, unsigned n) {
    unsigned left = threadIdx.x - 1u;
    unsigned i = left + n < n ? 0u : (left + n) % n;
    y[threadIdx.x] = x[i] + x[threadIdx.x - 1u + 1u];
}
"""
    assert not run_cuda(
        cuda(text), ("x", np.zeros(32, np.float32)), ("y", np.zeros(32, np.float32)), np.uint32(32)
    ).findings


def test_running_indices_of_loops_are_followed(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(const char* x, char* y, int step, int count) {
    unsigned i = 0;
    char sum = 0;
    #pragma unroll 1
    for (int k = 0; k < count; ++k) { sum += x[i]; i += step; }
    y[threadIdx.x] = sum;
}
"""
    x, y = ("x", np.zeros(64, np.int8)), ("y", np.zeros(32, np.int8))
    assert not run_cuda(cuda(text), x, y, np.int32(8), np.int32(8)).findings
    result = run_cuda(cuda(text), x, y, np.int32(2**30), np.int32(5))
    assert "index-overflow" in codes(result)


def test_64_bit_indices_do_not_wrap(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(const float* x, float* y, long long rows, int cols) {
    long long i = rows * cols + threadIdx.x;
    y[threadIdx.x] = i < 32 ? x[i] : 0.0f;
}
"""
    assert not run_cuda(
        cuda(text), ("x", np.zeros(32, np.float32)), ("y", np.zeros(32, np.float32)), np.int64(2**40), np.int32(7)
    ).findings


def test_an_unsigned_remainder_of_more_than_half_the_range_does_not_wrap(cuda: Cuda, run_cuda: Launch) -> None:
    text = """
extern "C" __global__ void k(const float* x, float* y, unsigned first, unsigned n) {
    unsigned i = first + threadIdx.x;
    y[threadIdx.x] = x[(size_t)(i - i / n * n)];
}
"""
    x, y = ("x", np.arange(1000, dtype=np.float32)), ("y", np.zeros(32, np.float32))
    result = run_cuda(cuda(text), x, y, np.uint32(3_000_000_000), np.uint32(1000))
    assert not result.findings
    assert np.array_equal(result.arrays["y"], np.arange(32))
