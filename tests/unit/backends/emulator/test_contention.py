"""Schedules put atomics of other warps between two atomics of one warp, and correct kernels keep their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.backend import decoded_of
from kernelmate.backends.emulator.contention import Contention, contended_atomics
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.records import Compiled, LaunchShape

Cuda = Callable[[str], Compiled]
RunCuda = Callable[..., RunResult]

GRID, BLOCK = 4, 64
THREADS = GRID * BLOCK
SEEDS = range(6)

HEADER = 'extern "C" __global__ void k(unsigned* p, unsigned* q) {\n'

EXCHANGED = HEADER + "const unsigned old = atomicAdd(p, 0u); atomicExch(p, old + 1u); }"
SUMMED = HEADER + "const unsigned old = atomicExch(p, 0u); atomicExch(p, old + 1u); }"
LARGEST = HEADER + "if (atomicMax(p, threadIdx.x) < threadIdx.x) atomicExch(q, threadIdx.x); }"
TICKET = HEADER + "const unsigned mine = atomicAdd(p, 1u); if (atomicAdd(p, 0u) != mine + 1u) atomicAdd(q, 1u); }"
PUBLISHED = (
    HEADER
    + "if (threadIdx.x) return; if (atomicAdd(p, 0u) == 0u) atomicExch(q, 1u); else atomicAdd(q, 1u); atomicAdd(p, 1u); }"
)
WRONG = {
    "read, then exchange": (EXCHANGED, 0, THREADS), "taken out and put back": (SUMMED, 0, THREADS),
    "largest and its place": (LARGEST, 1, BLOCK - 1), "ticket read again": (TICKET, 1, 0), "first by a peek": (PUBLISHED, 1, GRID),
}  # fmt: skip
"""Text, array, and the value that a kernel of this kind assumes for its first element."""


def outcomes(run_cuda: RunCuda, compiled: Compiled) -> list[tuple[int, int]]:
    found = []
    for seed in SEEDS:
        given = [(name, np.zeros(1, np.uint32)) for name in "pq"]
        result = run_cuda(compiled, *given, grid=(GRID,), block=(BLOCK,), schedule_seed=seed)
        assert not result.findings
        arrays = result.arrays
        found.append((int(arrays["p"][0]), int(arrays["q"][0])))
    return found


@pytest.mark.parametrize("name", sorted(WRONG))
def test_an_assumption_about_two_atomics_fails_under_some_schedule(name: str, cuda: Cuda, run_cuda: RunCuda) -> None:
    text, array, wanted = WRONG[name]
    assert {pair[array] for pair in outcomes(run_cuda, cuda(text))} != {wanted}


def test_odd_seeds_let_a_third_group_of_warps_come_last(cuda: Cuda, run_cuda: RunCuda) -> None:
    groups = [count for count, _ in outcomes(run_cuda, cuda(EXCHANGED))]
    assert set(groups[1::2]) == {3}
    assert max(groups[::2]) == 2


RIGHT = {
    "count": (HEADER + "atomicAdd(p, 1u); atomicMax(q, threadIdx.x); }", (THREADS, BLOCK - 1)),
    "compare and swap": (
        HEADER + "unsigned old = atomicAdd(p, 0u), was; while ((was = atomicCAS(p, old, old + 1u)) != old) old = was; }",
        (THREADS, 0),
    ),
    "last block": (
        HEADER + """if (threadIdx.x) return; atomicAdd(q, 5u); __threadfence();
        if (atomicAdd(p, 1u) == gridDim.x - 1) { __threadfence(); atomicExch(p, atomicAdd(q, 0u)); } }""",
        (5 * GRID, 5 * GRID),
    ),
    "last block reads what the others have stored": (
        """__device__ unsigned parts[4]; extern "C" __global__ void k(unsigned* p, unsigned* q) {
        __shared__ unsigned mine; if (threadIdx.x) return; parts[blockIdx.x] = 5u; __threadfence(); mine = atomicAdd(p, 1u);
        if (mine == gridDim.x - 1) { __threadfence(); for (int n = 0; n < 4; ++n) *q += __ldcg(parts + n); } }""",
        (GRID, 5 * GRID),
    ),
    "last block puts the counter back": (
        HEADER + """if (threadIdx.x) return; __threadfence(); const unsigned mine = atomicAdd(q, 1u); __threadfence();
        if (mine == gridDim.x - 1) { *p = 7u; *q = *(volatile unsigned*)q - gridDim.x; } }""",
        (7, 0),
    ),
    "lock": (
        HEADER + """if (threadIdx.x) return; while (atomicCAS(q, 0u, 1u)) {} __threadfence();
        const unsigned old = *(volatile unsigned*)p; *(volatile unsigned*)p = old + 1u; __threadfence(); atomicExch(q, 0u); }""",
        (GRID, 0),
    ),
    "lock around plain accesses": (
        HEADER + """if (threadIdx.x) return; while (atomicCAS(q, 0u, 1u)) {} __threadfence();
        *p += 1u; __threadfence(); atomicExch(q, 0u); }""",
        (GRID, 0),
    ),
    "lock in shared memory": (
        HEADER + """__shared__ unsigned lock, sum; if (threadIdx.x == 0) lock = sum = 0; __syncthreads();
        if (threadIdx.x % 32 == 0) { while (atomicCAS(&lock, 0u, 1u)) {} __threadfence_block(); sum += 1u;
        __threadfence_block(); atomicExch(&lock, 0u); } __syncthreads(); if (threadIdx.x == 0) atomicAdd(p, sum); }""",
        (THREADS // 32, 0),
    ),
    "barriers between": (
        HEADER + """__shared__ unsigned count; if (threadIdx.x == 0) count = 0; __syncthreads();
        atomicAdd(&count, 1u); atomicMax(&count, 1u); __syncthreads();
        if (threadIdx.x == 0) { atomicAdd(p, count); atomicMax(q, count); } }""",
        (THREADS, BLOCK),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_a_correct_kernel_has_one_result_under_all_schedules(name: str, cuda: Cuda, run_cuda: RunCuda) -> None:
    text, wanted = RIGHT[name]
    assert set(outcomes(run_cuda, cuda(text))) == {wanted}


def test_lanes_of_a_warp_execute_an_atomic_in_any_order(cuda: Cuda, run_cuda: RunCuda) -> None:
    text = cuda('extern "C" __global__ void k(unsigned* p, unsigned* q) { q[threadIdx.x] = atomicAdd(p, 1u); }')
    orders = set()
    for seed in SEEDS:
        found = run_cuda(
            text, ("p", np.zeros(1, np.uint32)), ("q", np.zeros(32, np.uint32)), schedule_seed=seed
        ).arrays["q"]
        assert sorted(found.tolist()) == list(range(32))
        orders.add(tuple(found.tolist()))
    assert len(orders) == len(SEEDS)
    assert tuple(range(32)) in orders  # seed 0 keeps the order of lanes


COMMUTING = HEADER + "atomicAdd(p + threadIdx.x, 1u); atomicAdd(q + threadIdx.x, 2u); }"
SINGLE = HEADER + "q[atomicAdd(p, 1u)] = threadIdx.x; }"


@pytest.mark.parametrize(("text", "cuts"), [(COMMUTING, 0), (SINGLE, 0), (EXCHANGED, 2), (TICKET, 3)])
def test_only_atomics_whose_order_may_matter_start_basic_blocks(text: str, cuts: int, cuda: Cuda) -> None:
    compiled = cuda(text)
    decoded = decoded_of(compiled.ptx, compiled.lowered_name)
    assert len(contended_atomics(decoded)) == cuts
    assert sum(block.contended for block in decoded.blocks) == cuts
    assert [block.start for block in decoded.blocks[1:]] == [block.end for block in decoded.blocks[:-1]]


def test_warps_are_delayed_as_a_whole_and_by_odd_seeds_only() -> None:
    lanes = Lanes(LaunchShape((8, 1, 1), (128, 1, 1)), 1024, 1)
    assert [Contention(lanes, seed).delays for seed in (1, 2, 3)] == [True, False, True]
    delayed = Contention(lanes, 1).delayed(7, lanes.iota).reshape(-1, 32)
    assert np.array_equal(delayed.any(axis=1), delayed.all(axis=1))
    assert 0 < np.count_nonzero(delayed) < delayed.size // 2


def test_the_order_of_a_lane_does_not_depend_on_the_others_beside_it() -> None:
    lanes = Lanes(LaunchShape((1, 1, 1), (64, 1, 1)), 64, 5)
    chosen: Any = Contention(lanes, 5)
    whole = chosen.order(3, lanes.iota)
    part = np.arange(0, 64, 3)
    assert [lane for lane in whole if lane % 3 == 0] == part[chosen.order(3, part)].tolist()


def test_threads_that_repeat_a_swap_do_not_all_fail_for_each_that_succeeds(cuda: Cuda, run_cuda: RunCuda) -> None:
    text = (
        HEADER
        + "unsigned old = *p, seen; do { seen = old; old = atomicCAS(p, seen, seen + 1u); } while (old != seen); }"
    )
    result = run_cuda(cuda(text), ("p", np.zeros(1, np.uint32)), ("q", np.zeros(1, np.uint32)), grid=(32,), block=(64,))
    assert result.arrays["p"][0] == 32 * 64
    assert result.longest_thread is not None
    assert result.longest_thread < 32 * 64
