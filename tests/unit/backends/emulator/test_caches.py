"""The model of L1 against a cache that is simulated access by access, and against figures that follow from the accesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.caches import LINE_BYTES, AccessTrace, _set_of, l1_hits
from kernelmate.backends.emulator.sampling import l1_bytes
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, LaunchShape, Target
from kernelmate.source import find_kernels, text_unit

SETS = 64
accesses = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15), st.booleans()), min_size=1, max_size=200)


def trace_of(made: list[tuple[int, int, bool]]) -> AccessTrace:
    lines, sectors, stores = zip(*made, strict=True)
    return AccessTrace(np.array(lines, np.int64), np.array(sectors, np.uint8), np.array(stores, bool))


def loads(lines: list[int], sectors: int = 15) -> AccessTrace:
    return trace_of([(line, sectors, False) for line in lines])


@given(accesses)
def test_a_cache_that_holds_everything_misses_each_sector_once(made: list[tuple[int, int, bool]]) -> None:
    seen: dict[int, int] = {}
    wanted = []
    for line, sectors, _ in made:
        wanted.append((sectors & seen.get(line, 0)).bit_count())
        seen[line] = seen.get(line, 0) | sectors
    assert l1_hits(trace_of(made), 64 * SETS * LINE_BYTES).tolist() == wanted


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 15)), min_size=1, max_size=300), st.integers(1, 4))
def test_loads_hit_what_the_least_recently_used_order_keeps(made: list[tuple[int, int]], ways: int) -> None:
    sets: list[dict[int, int]] = [{} for _ in range(SETS)]
    wanted = []
    for line, sectors in made:
        kept = sets[int(_set_of(np.array([line]))[0])]
        held = kept.pop(line, 0)
        wanted.append((held & sectors).bit_count())
        if len(kept) == ways:
            del kept[next(iter(kept))]
        kept[line] = held | sectors
    found = l1_hits(trace_of([(line, sectors, False) for line, sectors in made]), ways * SETS * LINE_BYTES)
    assert found.tolist() == wanted


def test_going_round_more_lines_than_fit_never_hits() -> None:
    around = list(range(SETS * 5)) * 4
    assert l1_hits(loads(around), 4 * SETS * LINE_BYTES).sum() == 0
    assert l1_hits(loads(around), 5 * SETS * LINE_BYTES).sum() == 3 * 4 * SETS * 5


def test_powers_of_two_do_not_share_a_set() -> None:
    rows = [row * 1024 for row in range(64)] * 2
    assert l1_hits(loads(rows), 8 * SETS * LINE_BYTES)[64:].sum() == 64 * 4


def test_stores_make_room_before_loads_do() -> None:
    cache = 16 * SETS * LINE_BYTES
    read = [(line, 15, False) for line in range(SETS * 8)]
    written = [(10_000 + line, 15, True) for line in range(SETS * 14)]
    found = l1_hits(trace_of(read + written + read), cache)
    otherwise = l1_hits(loads([line for line, _, _ in read + written + read]), cache)
    assert found[-len(read) :].sum() > otherwise[-len(read) :].sum()


@pytest.mark.parametrize(
    ("name", "shared", "resident", "kib"),
    [
        ("H100 SXM", 0, 8, 256), ("H100 SXM", 1024, 8, 240), ("H100 SXM", 4096, 8, 192), ("H100 SXM", 227 << 10, 1, 28),
        ("A100 SXM 80GB", 0, 8, 192), ("RTX 4090", 0, 6, 128), ("RTX 4090", 99 << 10, 1, 28),
    ],
)  # fmt: skip
def test_l1_has_what_shared_memory_leaves(name: str, shared: int, resident: int, kib: int) -> None:
    assert l1_bytes(find_target(name), shared, resident) == kib << 10


# ------------------------------------------------------------------------------------------ whole launches

KERNELS = """\
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = x[i] +
        x[(i + 32) % n];
}
__global__ void all_of_it(const float* x, float* y, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void columns(const float* x, float* y, int n) {
  float sum = 0;
  int row = blockIdx.x * blockDim.x + threadIdx.x, rows = gridDim.x * blockDim.x;
  for (int i = 0; i < n; i++) sum += x[row * n + i] * x[(rows + row) * n + i];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void waits(int* flag, const float* x, float* y) {
  if (blockIdx.x == 1) while (atomicAdd(flag, 0) == 0) {}
  y[blockIdx.x] = x[blockIdx.x];
  if (blockIdx.x == 0) atomicAdd(flag, 1);
}
__device__ int calls;
__global__ void counts(int* y) { y[blockIdx.x] = calls; if (blockIdx.x == 0) calls = calls + 1; }
__global__ void tally(const int* x, int* y, int n) {
  __shared__ int bins[32];
  bins[threadIdx.x % 32] = 0;
  __syncthreads();
  atomicAdd(&bins[x[threadIdx.x]], 1);
  __syncthreads();
  if (threadIdx.x < 32) atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}
"""


@pytest.fixture
def run(gpu: Target) -> Callable[..., RunResult]:
    kernels = {kernel.name: kernel for kernel in find_kernels(text_unit(KERNELS, "k.cu"))}

    def launch(name: str, blocks: int, threads: int, values: Mapping[str, Any], **options: Any) -> RunResult:
        code = compile_kernel(kernels[name], (), instance=None, target=gpu, options=CompileOptions())
        assert code.ok, code.diagnostics
        arguments = tuple(
            ArrayArgument(key, value) if isinstance(value, np.ndarray) else ScalarArgument(key, value)
            for key, value in values.items()
        )
        module = EmulatorBackend().load(code, gpu)
        shape = LaunchShape((blocks, 1, 1), (threads, 1, 1))
        return module.run(Run(shape, arguments, **({"count": True, "check": False} | options)))

    return launch


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_what_the_next_warp_has_loaded_is_there(run: Callable[..., RunResult]) -> None:
    n = 132 * 256
    found = run("twice", 132, 256, {"x": floats(n), "y": floats(n), "n": np.int32(n)})
    caches = found.counters.caches
    # Eight warps read 2 x 4 sectors each, of which 9 x 4 are different.
    assert caches.l1_load_hit_rate == pytest.approx(1 - 36 / 64)
    assert caches.l1_sector_hit_rate == pytest.approx(28 / 96)
    by_line = {line.line: line.l1_load_hit_rate for line in found.lines}
    assert sorted([by_line[4], by_line[5]]) == [0.0, 28 / 32]
    assert by_line[2] is None


def test_each_sm_reads_a_small_array_once_and_l2_the_first_time(run: Callable[..., RunResult]) -> None:
    n = 1024
    found = run("all_of_it", 132, 128, {"x": floats(n), "y": floats(132 * 128), "n": np.int32(n)})
    caches = found.counters.caches
    assert found.counters.global_load_sectors == 132 * 4 * n
    assert caches.l1_load_hit_rate == pytest.approx(1 - n / 8 / (4 * n))
    assert caches.dram_bytes_read == 4 * n
    assert caches.l2_sectors == 132 * n // 8 + found.counters.global_store_sectors
    assert caches.l2_sector_hit_rate == pytest.approx(1 - n / 8 / caches.l2_sectors)


def test_columns_of_more_rows_than_l1_has_lines_for_are_read_again(run: Callable[..., RunResult]) -> None:
    n = 64

    def hit_rate(blocks: int, threads: int) -> float:
        rows = blocks * threads
        values = {"x": floats(2 * rows, n), "y": floats(rows), "n": np.int32(n)}
        found = run("columns", blocks, threads, values).counters.caches.l1_load_hit_rate
        assert found is not None
        return found

    assert hit_rate(132, 256) == pytest.approx(7 / 8, abs=0.01)
    assert hit_rate(264, 1024) < 0.1


def test_nothing_is_estimated_where_blocks_wait_for_each_other(run: Callable[..., RunResult]) -> None:
    found = run("waits", 2, 1, {"flag": np.zeros(1, np.int32), "x": floats(2), "y": floats(2)})
    assert not found.findings
    assert found.l1 is None
    assert found.counters.caches is None


def test_a_sample_leaves_no_trace(run: Callable[..., RunResult], gpu: Target) -> None:
    kernel = next(kernel for kernel in find_kernels(text_unit(KERNELS, "k.cu")) if kernel.name == "counts")
    code = compile_kernel(kernel, (), instance=None, target=gpu, options=CompileOptions())
    module = EmulatorBackend().load(code, gpu)
    launches = Run(
        LaunchShape((1, 1, 1), (1, 1, 1)), (ArrayArgument("y", np.zeros(1, np.int32)),), count=True, check=False
    )
    assert [int(module.run(launches).arrays["y"][0]) for _ in range(3)] == [0, 1, 2]


def test_without_counting_nothing_is_sampled(run: Callable[..., RunResult]) -> None:
    found = run("twice", 2, 32, {"x": floats(64), "y": floats(64), "n": np.int32(64)}, count=False)
    assert found.l1 is None


@pytest.mark.parametrize(("values", "together"), [(1, 32.0), (2, 16.0), (32, 1.0)])
def test_contention_of_atomics_is_the_lanes_that_meet_at_an_address(
    run: Callable[..., RunResult], values: int, together: float
) -> None:
    x = (np.arange(128) % values).astype(np.int32)
    found = run("tally", 8, 128, {"x": x, "y": np.zeros(32, np.int32), "n": np.int32(128)})
    shared, memory = (line for line in found.lines if line.shared_atomic_requests or line.global_atomic_requests)
    assert (shared.shared_atomic_requests, shared.atomic_contention) == (8 * 4, together)
    assert shared.atomic_repeats == (together - 1) * 8 * 4
    assert (memory.global_atomic_requests, memory.atomic_contention, memory.atomic_repeats) == (8, 1.0, 0)
