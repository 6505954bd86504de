"""Threads that wait for each other, as CUDA has promised since Volta that they may; and what must not be waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import EmulationTooLarge, RunResult

Kernels = Callable[..., Any]
HEAD = "__global__ void k(int* y, int* flag) { const int t = threadIdx.x, b = blockIdx.x; (void)t; (void)b; "


@pytest.fixture(params=[0, 1, 2], ids=["in-order", "delayed", "permuted"])
def launch(request: pytest.FixtureRequest, cuda: Kernels, run_cuda: Kernels) -> Callable[..., RunResult]:
    """Run a body with arrays of zeros y and flag, under a schedule seed."""

    def run(body: str, *, grid: int = 1, block: int = 64, **options: Any) -> RunResult:
        arrays = [(name, np.zeros(256, np.int32)) for name in ("y", "flag")]
        options.setdefault("schedule_seed", request.param)
        return run_cuda(cuda(HEAD + body + " }"), *arrays, grid=(grid,), block=(block,), **options)

    return run


LOCKS = {
    "spinning": "while (atomicCAS(flag, 0, 1) != 0); __threadfence(); y[0]++; __threadfence(); atomicExch(flag, 0);",
    "trying": "bool done = false; while (!done) { if (atomicCAS(flag, 0, 1) == 0) { __threadfence(); y[0]++; "
              "__threadfence(); atomicExch(flag, 0); done = true; } }",
    "ticket": "int mine = atomicAdd(flag, 1); while (atomicAdd(flag + 1, 0) != mine); __threadfence(); y[0]++; "
              "__threadfence(); atomicAdd(flag + 1, 1);",
    "backing off": "unsigned ns = 8; while (atomicCAS(flag, 0, 1)) { __nanosleep(ns); if (ns < 256) ns *= 2; } "
                   "__threadfence(); y[0]++; __threadfence(); atomicExch(flag, 0);",
    "volatile test first": "while (true) { while (*(volatile int*)flag); if (atomicExch(flag, 1) == 0) break; } "
                           "__threadfence(); y[0]++; __threadfence(); *(volatile int*)flag = 0;",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_lanes_of_one_warp_take_a_lock_in_turn(name: str, launch: Callable[..., RunResult]) -> None:
    result = launch(LOCKS[name], grid=2, block=40)
    assert not result.findings
    assert result.arrays["y"][0] == 80


def test_a_block_waits_for_a_later_one(launch: Callable[..., RunResult]) -> None:
    body = """
    if (b == 0 && t == 0) { while (*(volatile int*)flag == 0); __threadfence(); y[0] = y[1] + 1; }
    if (b == gridDim.x - 1 && t == 0) { y[1] = 41; __threadfence(); *(volatile int*)flag = 1; }
    """
    result = launch(body, grid=40)
    assert not result.findings
    assert result.arrays["y"][0] == 42


def test_a_block_waits_for_one_that_starts_only_when_others_have_ended(launch: Callable[..., RunResult]) -> None:
    body = """
    if (b == 0 && t == 0) { while (*(volatile int*)flag == 0); __threadfence(); y[0] = 7; }
    if (b == gridDim.x - 1 && t == 0) { __threadfence(); *(volatile int*)flag = 1; }
    """
    result = launch(body, grid=3000, block=256)
    assert not result.findings
    assert result.arrays["y"][0] == 7


def test_what_would_have_to_run_all_together_and_is_too_large_for_that_is_refused(
    launch: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmate.backends.emulator.launch._TOGETHER_BYTES", 1 << 20)
    body = (
        "if (b == 0) { while (*(volatile int*)flag == 0); } else if (b == gridDim.x - 1) { *(volatile int*)flag = 1; }"
    )
    with pytest.raises(EmulationTooLarge, match="wait for much later ones"):
        launch(body, grid=3000, block=128)


def test_a_barrier_of_more_blocks_than_a_gpu_holds_is_a_hang(launch: Callable[..., RunResult]) -> None:
    body = "if (t == 0) { atomicAdd(flag, 1); while (*(volatile int*)flag < (int)gridDim.x); }"
    result = launch(body, grid=300, block=1024)
    assert "hang" in {finding.code for finding in result.findings}


def test_blocks_pass_on_what_they_know_one_after_the_other(launch: Callable[..., RunResult]) -> None:
    body = """
    __shared__ int base;
    if (t == 0) {
        volatile int* done = flag;
        volatile int* sum = y;
        if (b > 0) { while (done[b - 1] == 0); __threadfence(); base = sum[b - 1]; } else base = 0;
        sum[b] = base + b; __threadfence(); done[b] = 1;
    }
    """
    result = launch(body, grid=120, block=32)
    assert not result.findings
    assert result.arrays["y"][:120].tolist() == np.cumsum(np.arange(120)).tolist()


def test_producers_and_consumers_hand_over_through_shared_memory(launch: Callable[..., RunResult]) -> None:
    body = """
    __shared__ volatile int full, value;
    if (t == 0) full = 0;
    __syncthreads();
    for (int i = 0; i < 6; ++i) {
        if (t == 0) { while (full); value = i * 10; __threadfence_block(); full = 1; }
        if (t == 32) { while (!full); __threadfence_block(); y[i] = value; __threadfence_block(); full = 0; }
    }
    """
    result = launch(body)
    assert not result.findings
    assert result.arrays["y"][:6].tolist() == [0, 10, 20, 30, 40, 50]


def test_lanes_of_one_warp_hand_over_too(launch: Callable[..., RunResult]) -> None:
    body = """
    if (t == 0) { while (*(volatile int*)flag == 0); __threadfence(); y[0] = y[1]; }
    else if (t == 1) { y[1] = 5; __threadfence(); *(volatile int*)flag = 1; }
    """
    result = launch(body, block=32)
    assert not result.findings
    assert result.arrays["y"][0] == 5


SPECIALISED = """
__shared__ int tile[2][32];
const int warp = t / 32, lane = t % 32;
if (warp == 0) {
    for (int i = 0; i < 6; ++i) {
        const int slot = i & 1;
        if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + slot) : "memory");
        tile[slot][lane] = i * 100 + lane;
        asm volatile("bar.arrive %0, 64;" ::"r"(1 + slot) : "memory");
    }
} else {
    for (int i = 0; i < 6; ++i) {
        const int slot = i & 1;
        asm volatile("bar.sync %0, 64;" ::"r"(1 + slot) : "memory");
        y[i * 32 + lane] = tile[slot][31 - lane];
        READ
    }
}
"""
FREE = 'if (i < 4) asm volatile("bar.arrive %0, 64;" ::"r"(3 + slot) : "memory");'


def test_specialised_warps_with_named_barriers(launch: Callable[..., RunResult]) -> None:
    result = launch(SPECIALISED.replace("READ", FREE))
    assert not result.findings
    want = [[100 * i + 31 - lane for lane in range(32)] for i in range(6)]
    assert result.arrays["y"][:192].reshape(6, 32).tolist() == want


def test_a_slot_that_nobody_frees_is_waited_for_in_vain(launch: Callable[..., RunResult]) -> None:
    result = launch(SPECIALISED.replace("READ", ""))
    assert {finding.code for finding in result.findings} == {"divergent-barrier"}
    assert "32 of 64" in result.findings[0].message


def test_a_barrier_of_all_blocks_made_of_a_counter(launch: Callable[..., RunResult]) -> None:
    body = """
    y[b * 64 + t] = b + 1;
    __syncthreads();
    if (t == 0) { __threadfence(); atomicAdd(flag, 1); while (*(volatile int*)flag < (int)gridDim.x); __threadfence(); }
    __syncthreads();
    const int seen = y[(b + 1) % gridDim.x * 64 + t];
    atomicAdd(y + 192 + b, seen);
    """
    result = launch(body, grid=3)
    assert not result.findings
    assert result.arrays["y"][192:195].tolist() == [128, 192, 64]


def test_blocks_and_threads_may_return_early(launch: Callable[..., RunResult]) -> None:
    body = """
    __shared__ int sum;
    if (b % 2) return;
    if (t == 0) sum = 0;
    __syncthreads();
    if (t >= 40) return;
    atomicAdd(&sum, t);
    __syncthreads();
    if (t == 0) y[b] = sum;
    """
    result = launch(body, grid=6)
    assert not result.findings
    assert result.arrays["y"][:6].tolist() == [780, 0, 780, 0, 780, 0]


def test_parts_of_a_warp_meet_by_themselves(launch: Callable[..., RunResult]) -> None:
    body = """
    __shared__ int cell[64];
    const unsigned mine = t % 32 < 16 ? 0xffffu : 0xffff0000u;
    cell[t] = t % 32 < 16 ? t : 2 * t;
    SYNC
    y[t] = cell[t ^ 1];
    """
    result = launch(body.replace("SYNC", "if (t % 32 < 16) __syncwarp(mine); else __syncwarp(mine);"))
    assert not result.findings
    assert result.arrays["y"][:64].tolist() == [(t ^ 1) * (1 if t % 32 < 16 else 2) for t in range(64)]
    assert {finding.code for finding in launch(body.replace("SYNC", "")).findings} == {"shared-race"}


LOCKED_OUT = {
    "never released": "while (atomicCAS(flag, 0, 1) != 0); y[0]++;",
    "taken in two orders": "if (t % 32 == 0) { const int a = t / 32; while (atomicCAS(flag + a, 0, 1)); __nanosleep(100); "
                           "for (int i = 0; i < 40; ++i) __nanosleep(20); while (atomicCAS(flag + 1 - a, 0, 1)); y[0]++; "
                           "atomicExch(flag, 0); atomicExch(flag + 1, 0); }",
    "a flag that nobody sets": "while (*(volatile int*)flag == 0); y[0] = 1;",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LOCKED_OUT))
def test_waiting_for_what_never_comes_is_a_hang_soon(
    name: str, launch: Callable[..., RunResult], request: pytest.FixtureRequest
) -> None:
    result = launch(LOCKED_OUT[name])
    if name == "taken in two orders" and request.node.callspec.params["launch"] == 1:
        # A warp that is delayed in front of its first lock leaves both to the other.
        assert result.arrays["y"][0] == 2
    else:
        assert "hang" in {finding.code for finding in result.findings}
    assert result.ptx_instructions < 5_000_000


MASKS = [
    ("if (t % 2) y[t] = __shfl_sync(0xaaaaaaaa, t, 0);", "error", "does not take part"),
    ("if (t >= 20) return; y[t] = __shfl_down_sync(0xffffffff, t, 4);", "error", "does not take part"),
    ("y[t] = __shfl_xor_sync(0xffff, t, 1);", "error", "does not name the thread itself"),
    ("y[t] = __ballot_sync(0x1, t & 1);", "error", "does not name the thread itself"),
    ("if (t >= 20) return; y[t] = __ballot_sync(0xffffffff, t & 1);", "warning", "names threads that end without it"),
    ("if (t < 16) y[t] = __shfl_xor_sync(0xffffffff, t, 1);", "warning", "names threads that end without it"),
    ("if (t < 16) y[t] = __any_sync(0xffffffff, t == 3); else __syncthreads();", "error", "never reach it"),
]


@pytest.mark.parametrize(("body", "severity", "message"), MASKS)
def test_masks_that_name_the_wrong_lanes_are_findings(
    body: str, severity: str, message: str, launch: Callable[..., RunResult]
) -> None:
    found = [finding for finding in launch(body, block=32).findings if finding.code == "shuffle-mask"]
    assert [finding.severity for finding in found] == [severity]
    assert message in found[0].message


@pytest.mark.parametrize(
    "body",
    [
        "y[t] = __ballot_sync(0xffffffff, t & 1);",  # the last warp has 16 threads, and never had more
        "if (t % 3 == 0) { unsigned m = __activemask(); y[t] = __popc(__ballot_sync(m, 1)); }",
        "unsigned m = __ballot_sync(0xffffffff, t < 20); if (t < 20) y[t] = __shfl_sync(m, t, 3); __syncwarp();",
        "if (t >= 20) return; __syncwarp(); y[t] = t;",
        "unsigned m = t < 16 ? 0xffff : 0xffff0000; if (t < 32) y[t] = __reduce_add_sync(m, 1u);",
    ],
)
def test_masks_that_name_who_is_there_are_none(body: str, launch: Callable[..., RunResult]) -> None:
    assert not launch(body, block=48).findings


BARRIERS = [
    ("if (t < 32) __syncthreads(); else while (*(volatile int*)flag == 0);", {"hang", "divergent-barrier"}),
    ("if (t < 32)\n__syncthreads();\nelse\n__syncthreads(); y[t] = 1;", {"divergent-barrier"}),
    ('if (t < 32) asm volatile("bar.sync 1;"); else __syncthreads(); y[t] = 1;', {"divergent-barrier"}),
    ('asm volatile("bar.sync 1, 96;"); y[t] = 1;', {"divergent-barrier"}),
]


@pytest.mark.parametrize(("body", "codes"), BARRIERS)
def test_barriers_that_not_all_can_pass_together_are_findings(
    body: str, codes: set[str], launch: Callable[..., RunResult]
) -> None:
    found = {finding.code for finding in launch(body).findings}
    assert found
    assert found <= codes
