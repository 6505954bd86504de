"""`mbarrier` against a model of it, and what it orders; `elect.sync`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult

Launch = Callable[..., RunResult]
Text = Callable[..., str]
Kernels = Callable[..., Any]


@dataclass
class Model:
    """The PTX ISA's phases: pending arrivals, expected arrivals, completed phases."""

    pending: int
    expected: int
    phase: int = 0

    def arrive(self, count: int, *, drop: bool = False) -> tuple[int, int]:
        before = self.phase, self.pending
        self.pending -= count
        self.expected -= count if drop else 0
        if self.pending == 0:
            self.phase += 1
            self.pending = self.expected
        return before


@pytest.mark.instruction("mbarrier")
@pytest.mark.parametrize("space", ["shared", "shared::cta", ""])
@pytest.mark.parametrize("expected", [1, 5, 32, 33, 70])
def test_arrivals_take_turns_and_phases_follow_each_other(
    expected: int, space: str, launch: Launch, kernel: Text
) -> None:
    dot = f".{space}" if space else ""
    place = "%d9" if not space else "%r9"
    steps = "".join(
        f"""
        mbarrier.arrive{order}{dot}.b64 %d{2 + step}, [{place}]; mbarrier.pending_count.b64 %r{20 + step}, %d{2 + step};
        st.global.u32 [%d1+{4 * step}], %r{20 + step};
        """
        for step, order in enumerate(["", ".release.cta", ".relaxed.cta"])
    )
    tests = "".join(
        f"""
        mbarrier.{word}{dot}.b64 %q1, [{place}], {state}; selp.u32 %r5, 1, 0, %q1; st.global.u32 [%d1+{12 + 4 * index}], %r5;
        """
        for index, (word, state) in enumerate(
            [("test_wait", "%d2"), ("test_wait.acquire.cta", "%d4"), ("try_wait", "%d3"), ("try_wait.parity", "0"),
             ("test_wait.parity", "1")]
        )
    )  # fmt: skip
    body = f"""
    .shared .align 8 .b64 bar;
    mov.u32 %r9, bar; cvt.u64.u32 %d9, %r9; cvta.shared.u64 %d9, %d9; mul.wide.u32 %d1, %tid1, 32; add.s64 %d1, %p0, %d1;
    mov.u32 %r1, %tid.x; setp.eq.u32 %q2, %r1, 0; @%q2 mbarrier.init{dot}.b64 [{place}], {expected}; bar.sync 0;
    {steps} bar.sync 0; {tests} bar.sync 0; @%q2 mbarrier.inval{dot}.b64 [{place}]; ret;
    """
    result = launch(kernel(body), np.zeros((3, 32, 8), np.uint32), grid=(3,))
    assert not result.findings
    model = Model(expected, expected)
    found = [[model.arrive(1) for _ in range(32)] for _ in range(3)]
    for block in range(3):
        for lane, row in enumerate(result.arrays["a0"][block].tolist()):
            assert row[:3] == [found[step][lane][1] for step in range(3)]
            done = [(model.phase - found[step][lane][0]) % 2 == 1 for step in (0, 2, 1)]
            assert row[3:] == [*map(int, done), int(model.phase % 2 != 0), int(model.phase % 2 != 1)]


@pytest.mark.instruction("mbarrier")
def test_counts_and_drops(launch: Launch, kernel: Text) -> None:
    body = """
    .shared .align 8 .b64 bar; mov.u32 %r9, bar; mul.wide.u32 %d1, %tid1, 16; add.s64 %d1, %p0, %d1;
    setp.eq.u32 %q2, %tid1, 0; @%q2 mbarrier.init.shared.b64 [%r9], 24; bar.warp.sync 0xffffffff;
    and.b32 %r1, %tid1, 1; add.u32 %r2, %r1, 1; setp.lt.u32 %q3, %tid1, 16; @!%q3 bra WAIT;
    mbarrier.arrive.shared.b64 %d2, [%r9], %r2; mbarrier.pending_count.b64 %r3, %d2; st.global.u32 [%d1], %r3;
    setp.lt.u32 %q4, %tid1, 4; @!%q4 bra WAIT;
    mbarrier.arrive_drop.shared.b64 %d3, [%r9]; mbarrier.pending_count.b64 %r4, %d3; st.global.u32 [%d1+4], %r4;
    mbarrier.arrive_drop.shared.b64 _, [%r9], 2; mbarrier.arrive.noComplete.shared.b64 %d4, [%r9], 1;
    mbarrier.pending_count.b64 %r4, %d4; st.global.u32 [%d1+8], %r4;
    WAIT: bar.warp.sync 0xffffffff; mbarrier.arrive.shared.b64 %d5, [%r9]; mbarrier.pending_count.b64 %r4, %d5;
    st.global.u32 [%d1+12], %r4; ret;
    """
    result = launch(kernel(body), np.zeros((32, 4), np.uint32))
    model = Model(24, 24)
    want = np.zeros((32, 4), int)
    for lane in range(16):
        want[lane, 0] = model.arrive(lane % 2 + 1)[1]
    for lane in range(4):
        want[lane, 1] = model.arrive(1, drop=True)[1]
    for _ in range(4):
        model.arrive(2, drop=True)
    for lane in range(4):
        want[lane, 2] = model.arrive(1)[1]
    for lane in range(32):
        want[lane, 3] = model.arrive(1)[1]
    assert not result.findings
    assert result.arrays["a0"].tolist() == want.tolist()


@pytest.mark.instruction("mbarrier")
def test_arriving_for_more_than_is_waited_for_is_a_finding(launch: Launch, kernel: Text) -> None:
    body = """
    .shared .align 8 .b64 bar; mov.u32 %r9, bar; setp.ne.u32 %q2, %tid1, 0; @%q2 ret;
    mbarrier.init.shared.b64 [%r9], 2; .loc 1 7 3
    mbarrier.arrive.shared.b64 _, [%r9], 3; ret;
    """
    (finding,) = launch(kernel(body), np.zeros(1, np.uint32)).findings
    assert (finding.code, finding.line, finding.threads) == ("divergent-barrier", 7, (0,))


EXCHANGE = """
#include <cuda/barrier>
__global__ void k(const int* x, int* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int tile[128];
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    if (t == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        tile[t] = x[i] + round;
        WRITTEN
        y[i] += tile[127 - t];
        READ
    }
}"""
MEET = "bar.arrive_and_wait();"
SPLIT = "{ auto token = bar.arrive(); bar.wait(cuda::std::move(token)); }"


@pytest.mark.parametrize("meet", [MEET, SPLIT, "bar.wait(bar.arrive());"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_barrier_in_shared_memory_orders_what_its_threads_do(
    seed: int, meet: str, cuda: Kernels, run_cuda: Kernels
) -> None:
    text = EXCHANGE.replace("WRITTEN", meet).replace("READ", MEET)
    x = np.arange(256, dtype=np.int32)
    result = run_cuda(
        cuda(text, "k"), ("x", x), ("y", np.zeros(256, np.int32)), grid=(2,), block=(128,), schedule_seed=seed
    )
    assert not result.findings
    assert np.array_equal(result.arrays["y"].reshape(2, 128), x.reshape(2, 128)[:, ::-1] * 3 + 3)


@pytest.mark.parametrize(("written", "read"), [("bar.arrive();", MEET), (MEET, ""), ("", MEET)])
def test_without_waiting_there_is_no_order(written: str, read: str, cuda: Kernels, run_cuda: Kernels) -> None:
    text = EXCHANGE.replace("WRITTEN", f"(void){written}" if written.endswith("arrive();") else written).replace(
        "READ", read
    )
    arrays = ("x", np.arange(128, dtype=np.int32)), ("y", np.zeros(128, np.int32))
    assert "shared-race" in {finding.code for finding in run_cuda(cuda(text, "k"), *arrays, block=(128,)).findings}


def test_waiting_for_arrivals_that_never_come_is_a_hang(launch: Launch, kernel: Text) -> None:
    body = """
    .shared .align 8 .b64 bar; mov.u32 %r9, bar; setp.eq.u32 %q2, %tid1, 0;
    @%q2 mbarrier.init.shared.b64 [%r9], 33; bar.warp.sync 0xffffffff; mbarrier.arrive.shared.b64 %d2, [%r9];
    AGAIN: .loc 1 9 5
    mbarrier.try_wait.shared.b64 %q1, [%r9], %d2; @!%q1 bra AGAIN; ret;
    """
    result = launch(kernel(body), np.zeros(1, np.uint32))
    assert [(finding.code, finding.line) for finding in result.findings] == [("hang", 9)]


COPIES = """
#include <cuda/barrier>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int* x, int* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) int tile[2][128];
    auto block = cg::this_thread_block();
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 128);
    block.sync();
    for (int part = 0; part < 2; ++part) {
        cuda::memcpy_async(block, tile[part], x + 128 * part, sizeof(int) * 128, bar);
        WAIT
        y[128 * part + t] = tile[part][127 - t];
    }
}"""


def test_copies_are_there_once_the_barrier_says_so(cuda: Kernels, run_cuda: Kernels) -> None:
    x = np.arange(256, dtype=np.int32)
    arrays = ("x", x), ("y", np.zeros(256, np.int32))
    waited = run_cuda(cuda(COPIES.replace("WAIT", MEET), "k"), *arrays, block=(128,))
    assert not waited.findings
    assert np.array_equal(waited.arrays["y"].reshape(2, 128), x.reshape(2, 128)[:, ::-1])
    hasty = run_cuda(cuda(COPIES.replace("WAIT", "(void)bar.arrive();"), "k"), *arrays, block=(128,))
    assert "shared-race" in {finding.code for finding in hasty.findings}


@pytest.mark.instruction("elect")
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0xFFFF0000, 0x00000100, 0x80000001])
def test_one_lane_of_the_mask_is_elected(mask: int, launch: Launch, kernel: Text) -> None:
    body = f"""
    mov.u32 %r1, %laneid; mov.u32 %r2, {mask}; shr.u32 %r3, %r2, %r1; and.b32 %r3, %r3, 1; setp.eq.u32 %q1, %r3, 0; @%q1 ret;
    elect.sync %r4|%q2, {mask}; elect.sync _|%q3, {mask}; selp.u32 %r5, 100, 0, %q2; selp.u32 %r6, 1000, 0, %q3;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, 1; st.global.u32 [%at4], %r4; ret;
    """
    result = launch(kernel(body), np.zeros(64, np.uint32), grid=(2,))
    assert not result.findings
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    want = [(lanes[0] + 1 + 1100 * (lane == lanes[0])) if lane in lanes else 0 for lane in range(32)]
    assert result.arrays["a0"].tolist() == want * 2


SPECIALISED = """
#include <cuda/barrier>
__global__ void k(const int* x, int* y) {
    __shared__ int tile[32];
    __shared__ cuda::barrier<cuda::thread_scope_block> full, empty;
    if (threadIdx.x == 0) { init(&full, 64); init(&empty, 64); }
    __syncthreads();
    int sum = 0;
    for (int part = 0; part < 4; ++part) {
        if (threadIdx.x < 32) {
            if (part > FIRST) empty.arrive_and_wait();
            tile[threadIdx.x] = x[32 * part + threadIdx.x];
            (void)full.arrive();
        } else {
            full.arrive_and_wait();
            sum += tile[threadIdx.x - 32];
            (void)empty.arrive();
        }
    }
    if (threadIdx.x >= 32) y[threadIdx.x - 32] = sum;
}"""


def test_a_warp_that_waits_with_a_clock_is_woken_soon(cuda: Kernels, run_cuda: Kernels) -> None:
    x = np.arange(128, dtype=np.int32)
    arrays = ("x", x), ("y", np.zeros(32, np.int32))
    result = run_cuda(cuda(SPECIALISED.replace("FIRST", "0"), "k"), *arrays, block=(64,))
    assert not result.findings
    assert np.array_equal(result.arrays["y"], x.reshape(4, 32).sum(0))
    assert result.longest_thread < 5000


def test_waiting_with_a_clock_for_arrivals_that_never_come_is_a_hang(cuda: Kernels, run_cuda: Kernels) -> None:
    arrays = ("x", np.arange(128, dtype=np.int32)), ("y", np.zeros(32, np.int32))
    result = run_cuda(cuda(SPECIALISED.replace("FIRST", "-1"), "k"), *arrays, block=(64,))
    assert "hang" in {finding.code for finding in result.findings}
    assert any("arrivals" in finding.message for finding in result.findings)
