"""Counters of sectors and passes of memory: many warps at once, and accesses to local memory."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.counters import GlobalCounter, SharedCounter
from kernelmate.compiler import compile_kernel
from kernelmate.records import CompileOptions, LaunchShape, Target
from kernelmate.source import find_kernels, text_unit

Counter = GlobalCounter | SharedCounter


@st.composite
def accesses(draw: Callable[[Any], Any]) -> tuple[int, np.ndarray, np.ndarray]:
    """Bytes of one access, lanes, and offsets: the same lanes of several warps, or other ones in the last warp."""
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    warps = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=6)))
    active = sorted(draw(st.sets(st.integers(0, 31), min_size=1, max_size=32)))
    last = sorted(draw(st.sets(st.integers(0, 31), min_size=1, max_size=32))) if draw(st.booleans()) else active
    moved, step = draw(st.sampled_from([0, 4, 32, 128, 132])), draw(st.integers(0, 33)) * size
    lanes, offsets = [], []
    for number, warp in enumerate(warps):
        for lane in last if number == len(warps) - 1 else active:
            lanes.append(32 * warp + lane)
            offsets.append(number * moved // size * size + lane * step)
    return size, np.array(lanes, np.int64), np.array(offsets, np.int64)


def counted(
    make: Callable[[], Counter], kind: type, size: int, *parts: tuple[np.ndarray, np.ndarray]
) -> tuple[int, ...]:
    counter = make()
    site: Any = SimpleNamespace(number=1, action="load", size=size, served=None)
    for lanes, offsets in parts:
        counter.access(site, lanes, offsets.astype(kind), None)
    found = counter.sites[1]
    return found.requests, found.passes, found.lanes, found.lines


@pytest.mark.parametrize(("make", "kind"), [(GlobalCounter, np.uint64), (SharedCounter, np.uint32)])
@given(access=accesses())
def test_warps_counted_together_are_as_many_counted_one_by_one(
    make: Callable[[], Counter], kind: type, access: tuple[int, np.ndarray, np.ndarray]
) -> None:
    size, lanes, offsets = access
    alone = [(lanes[lanes >> 5 == warp], offsets[lanes >> 5 == warp]) for warp in dict.fromkeys(lanes >> 5)]
    assert counted(make, kind, size, (lanes, offsets)) == counted(make, kind, size, *alone)


def test_half_a_warp_of_every_block_takes_one_pass_each() -> None:
    """As in the last steps of a tree over shared memory: lanes 0 to 15 of the first of eight warps, in many blocks."""
    lanes = (256 * np.arange(64)[:, None] + np.arange(16)).ravel()
    offsets = np.tile(4 * np.arange(16), 64)
    assert counted(SharedCounter, np.uint32, 4, (lanes, offsets)) == (64, 64, 1024, 0)
    assert counted(SharedCounter, np.uint32, 4, (lanes, 32 * offsets)) == (64, 16 * 64, 1024, 0)
    assert counted(GlobalCounter, np.uint64, 4, (lanes, offsets)) == (64, 128, 1024, 64)


TEXT = """\
__global__ void same(const int* at, float* y, int n) {
  float kept[16];
  for (int i = 0; i < 16; i++)
    kept[(i * 5 + n) % 16] = i;
  y[threadIdx.x] =
      kept[at[0]];
}
__global__ void own(const int* at, float* y, int n) {
  volatile float kept[32];
  kept[0] = n;
  y[threadIdx.x] =
      kept[at[threadIdx.x]];
}
__global__ void wide(const int* at, double* y, int n) {
  volatile double kept[8];
  kept[at[0]] = n;
  y[threadIdx.x] = kept[at[1]];
}
__global__ void none(const int* at, float* y, int n) { y[threadIdx.x] = at[threadIdx.x]; }
__device__ __noinline__ float called(float a, float b, int n) { return n > 3 ? a * b : a; }
__global__ void calls(const int* at, float* y, int n) { y[threadIdx.x] = called(at[threadIdx.x], 2.0f, n); }
__global__ void __launch_bounds__(1024, 2) spills(const int* at, float* y, int n) {
  float kept[64];
#pragma unroll
  for (int i = 0; i < 64; i++) kept[i] = at[i * 1024 + threadIdx.x];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; i++) sum = sum * kept[i] + kept[63 - i];
  y[threadIdx.x] = sum;
}
"""


@pytest.fixture
def run(gpu: Target) -> Callable[..., RunResult]:
    kernels = {kernel.name: kernel for kernel in find_kernels(text_unit(TEXT, "k.cu"))}

    def launch(name: str, threads: int, at: Any, kind: type = np.float32, n: int = 3) -> RunResult:
        code = compile_kernel(kernels[name], (), instance=None, target=gpu, options=CompileOptions())
        assert code.ok, code.diagnostics
        arguments = (
            ArrayArgument("at", np.asarray(at, np.int32)), ArrayArgument("y", np.zeros(threads, kind)),
            ScalarArgument("n", np.int32(n)),
        )  # fmt: skip
        module = EmulatorBackend().load(code, gpu)
        found = module.run(Run(LaunchShape((1, 1, 1), (threads, 1, 1)), arguments, count=True, check=False))
        assert not found.findings
        return found

    return launch


def by_line(found: RunResult) -> dict[int | None, int]:
    return {line.line: line.local_sectors for line in found.lines if line.local_sectors}


def test_lanes_that_want_the_same_place_of_their_own_share_sectors(run: Callable[..., RunResult]) -> None:
    found = run("same", 64, [7])
    lines = by_line(found)
    assert lines[6] == 2 * 4  # a warp's 32 words are four sectors
    assert lines[4] == 2 * 16 * 4
    assert found.counters.local_sectors == sum(lines.values())


@pytest.mark.parametrize(("places", "sectors"), [([0] * 32, 4), (list(range(32)), 32), ([0, 1] * 16, 8)])
def test_lanes_that_want_different_places_want_rows_of_their_own(
    places: list[int], sectors: int, run: Callable[..., RunResult]
) -> None:
    assert by_line(run("own", 32, places))[12] == sectors


def test_lanes_of_a_part_of_a_warp_want_a_part_of_a_row(run: Callable[..., RunResult]) -> None:
    assert by_line(run("own", 9, [0] * 9))[12] == 2


def test_eight_bytes_are_two_rows(run: Callable[..., RunResult]) -> None:
    assert by_line(run("wide", 32, [1, 1], np.float64)) == {16: 8, 17: 8}


def test_there_are_none_without_local_memory(run: Callable[..., RunResult]) -> None:
    assert run("none", 32, range(32)).counters.local_sectors == 0


def test_what_calls_pass_is_in_registers(run: Callable[..., RunResult]) -> None:
    assert run("calls", 32, range(32)).counters.local_sectors == 0


def test_where_ptxas_spills_the_total_is_not_known(run: Callable[..., RunResult]) -> None:
    assert run("spills", 1024, np.ones(64 * 1024)).counters.local_sectors is None
