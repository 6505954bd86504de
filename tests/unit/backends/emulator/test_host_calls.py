"""Output of `printf` and `assert` in kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.host_calls import MOST_PRINTED, format_line
from kernelmate.records import Compiled


def test_every_thread_prints_its_line(cuda: Callable[..., Compiled], run_cuda: Callable[..., RunResult]) -> None:
    text = """
#include <cstdio>
extern "C" __global__ void k(float x, long long big) {
    if (threadIdx.x < 3) printf("thread %d of %s: %.2f %lld%%\\n", threadIdx.x, "block", x * threadIdx.x, big);
}
"""
    printed = run_cuda(cuda(text), np.float32(1.5), np.int64(-(2**40))).printed
    assert printed == "".join(f"thread {t} of block: {1.5 * t:.2f} {-(2**40)}%\n" for t in range(3))


def test_output_is_cut(cuda: Callable[..., Compiled], run_cuda: Callable[..., RunResult]) -> None:
    text = '#include <cstdio>\nextern "C" __global__ void k() { printf("0123456789abcdef\\n"); }'
    assert len(run_cuda(cuda(text), grid=(200,), block=(64,)).printed) == MOST_PRINTED


def test_a_failed_assertion_is_a_trap_with_its_condition(
    cuda: Callable[..., Compiled], run_cuda: Callable[..., RunResult]
) -> None:
    text = """
#include <cassert>
extern "C" __global__ void k(int* y, int n) {
    int i = threadIdx.x;
    assert(i < n);
    y[i] = i;
}
"""
    arguments = ("y", np.zeros(32, np.int32))
    assert not run_cuda(cuda(text), arguments, np.int32(32)).findings
    (finding,) = run_cuda(cuda(text), arguments, np.int32(30)).findings
    assert (finding.code, finding.line, finding.threads) == ("trap", 5, (30, 31))
    assert "i < n" in finding.message


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("%d|%5d|%-5d|%05d", struct.pack("<4i", -3, 4, 5, 6), "-3|    4|5    |00006"),
        ("%u %x %X %o", struct.pack("<4I", 2**32 - 1, 255, 255, 8), "4294967295 ff FF 10"),
        ("%f %e %g", struct.pack("<3d", 1.5, 1500.0, 0.0001), "1.500000 1.500000e+03 0.0001"),
        (
            "%*d %.*f",
            struct.pack("<2i4x i4x d".replace(" ", ""), 6, 42, 0, 0.0)[:8] + struct.pack("<i4xd", 1, 2.25),
            "    42 2.2",
        ),
        ("%c%c %p", struct.pack("<2iQ", 72, 105, 0xABC), "Hi 0xabc"),
        ("%hd %hhu", struct.pack("<2i", 70000, 257), "4464 1"),
        ("%llx", struct.pack("<Q", 2**63), "8000000000000000"),
    ],
)
def test_formats_mean_what_they_mean_in_c(form: str, values: bytes, expected: str) -> None:
    assert format_line(form.encode(), lambda at, size: values[at : at + size], lambda at: b"?") == expected
