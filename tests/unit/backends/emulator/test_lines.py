"""Counters of source lines: each where it belongs, and together those of the launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.memory import MOST_LINES
from kernelmate.compiler import compile_kernel
from kernelmate.records import CompileOptions, LaunchShape, LineCounters, Target
from kernelmate.source import find_kernels, text_unit

TEXT = """\
__global__ void k(const float* x, float* y, unsigned* bins, int n) {
  __shared__ float tile[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  tile[threadIdx.x * 2 % 256] =
      i < n ? x[i * 8] : 0.0f;
  __syncthreads();
  if (threadIdx.x % 2)
    y[i] = sqrtf(tile[threadIdx.x]) + tile[(threadIdx.x + 7) % 256];
  __syncthreads();
  atomicAdd(&bins[i % 4], 1u);
}
"""
N = 1000
TOTALS = (
    "global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors", "global_atomic_requests",
    "global_bytes_asked", "shared_load_wavefronts", "shared_store_wavefronts", "bank_conflicts", "divergent_branches",
)  # fmt: skip


@pytest.fixture
def result(gpu: Target) -> RunResult:
    unit = text_unit(TEXT, "k.cu")
    code = compile_kernel(find_kernels(unit)[0], (), instance=None, target=gpu, options=CompileOptions())
    assert code.ok, code.diagnostics
    arguments: tuple[Any, ...] = (
        ArrayArgument("x", np.ones(8 * N, np.float32)), ArrayArgument("y", np.zeros(1024, np.float32)),
        ArrayArgument("bins", np.zeros(4, np.uint32)), ScalarArgument("n", np.int32(N)),
    )  # fmt: skip
    run = Run(LaunchShape((4, 1, 1), (256, 1, 1)), arguments, count=True, check=False)
    return EmulatorBackend().load(code, gpu).run(run)


def ran(body: str, gpu: Target, size: int) -> RunResult:
    """A launch of 64 threads over `x` and `y`; the body's lines count from 2."""
    text = (
        "__global__ void k(const volatile float* x, volatile float* v) { float* y = (float*)v; int i = threadIdx.x;\n"
        + body
        + "}"
    )
    code = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=gpu, options=CompileOptions()
    )
    assert code.ok, code.diagnostics
    arguments = (ArrayArgument("x", np.ones(96, np.float32)), ArrayArgument("v", np.zeros(size, np.float32)))
    return (
        EmulatorBackend()
        .load(code, gpu)
        .run(Run(LaunchShape((1, 1, 1), (64, 1, 1)), arguments, count=True, check=False))
    )


def at(result: RunResult, line: int) -> LineCounters:
    return next(one for one in result.lines if one.line == line)


def test_lines_add_up_to_the_launch(result: RunResult) -> None:
    for name in TOTALS:
        assert sum(getattr(line, name) for line in result.lines) == getattr(result.counters, name), name
    assert sum(line.thread_instructions for line in result.lines) == result.ptx_instructions


def test_a_strided_load_shows_at_its_line(result: RunResult) -> None:
    loads = at(result, 5)
    assert loads.global_load_requests == 32
    assert loads.global_load_sectors == N
    assert loads.l1_lines == N / 4
    assert loads.global_bytes_asked == 4 * N
    assert loads.global_bytes_moved == 32 * N


def test_bytes_touched_show_at_each_line(result: RunResult) -> None:
    touched = {line.line: line.footprint_bytes for line in result.lines if line.footprint_bytes}
    # A sector for each of 1,000 loads; 1,024 floats in whole, though every other one is stored; four counters in one sector.
    assert touched == {5: 32 * N, 8: 4096, 10: 32}
    assert sum(touched.values()) == result.footprint_bytes


def test_bytes_that_two_lines_touch_count_for_both_and_once_in_total(gpu: Target) -> None:
    result = ran("y[i] = x[i];\ny[i] += x[i + 32];\nif (i < 8) y[0] = x[i] + y[i];\n", gpu, 64)
    touched = {line.line: line.footprint_bytes for line in result.lines}
    assert (touched[2], touched[3], touched[4]) == (512, 512, 64)
    assert result.footprint_bytes == 384 + 256


@pytest.mark.parametrize("lines", [7, 8, 20, 40])
def test_many_lines_are_told_apart_up_to_a_number(lines: int, gpu: Target) -> None:
    body = "".join(f"atomicAdd(&y[64 + 8 * {line}], x[i % 8]);\n" for line in range(lines))
    result = ran(body, gpu, 512)
    told = [line.footprint_bytes for line in result.lines if line.global_atomic_requests]
    assert told == [64 if line < MOST_LINES - 1 else None for line in range(lines)]
    assert result.footprint_bytes == 32 * lines + 32


def test_conflicts_show_at_the_line_that_stores(result: RunResult) -> None:
    stores = at(result, 4)
    assert stores.shared_store_wavefronts == 2 * 32
    assert stores.bank_conflicts == 32


def test_barriers_are_counted_once_for_each_block(result: RunResult) -> None:
    assert (at(result, 6).barriers, at(result, 9).barriers) == (4, 4)
    assert result.barriers == 8


def test_divergence_shows_at_the_branch(result: RunResult) -> None:
    assert sum(line.divergent_branches for line in result.lines if line.line in (7, 8)) == 32


def test_atomics_show_with_the_sectors_that_they_share(result: RunResult) -> None:
    atomics = at(result, 10)
    assert atomics.global_atomic_requests == 32
    assert atomics.global_atomic_sectors == 32
    assert result.atomic_sectors == 1


def test_nothing_is_counted_unasked(launch: Callable[..., RunResult], kernel: Callable[..., str]) -> None:
    ran = launch(kernel("st.global.f32 [%at4], %f0;\nret;"), np.zeros(32, np.float32))
    assert ran.lines == ()
    assert ran.atomic_sectors is None
