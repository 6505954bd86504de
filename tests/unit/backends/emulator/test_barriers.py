"""Barriers of blocks, and shared memory raced over where they are missing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.records import Compiled

Launch = Callable[..., RunResult]
Text = Callable[..., str]
PLACE = ".shared .align 16 .b8 tile[1024]; mov.u32 %r40, %tid.x; shl.b32 %r41, %r40, 2; mov.u32 %r42, tile; add.u32 %r43, %r42, %r41;"


def codes(result: RunResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_barrier_that_only_some_reach_is_a_deadlock(launch: Launch, kernel: Text) -> None:
    body = "setp.lt.u32 %q1, %tid1, 32; @%q1 bra OUT; .loc 1 6 4\n bar.sync 0; bra END; OUT: bar.sync 1; END: ret;"
    result = launch(kernel(body), np.zeros(64, np.uint32), block=(64,))
    assert "divergent-barrier" in codes(result)
    assert any("32 of 64" in finding.message for finding in result.findings)
    assert result.findings[0].line == 6


def test_threads_that_have_ended_are_not_waited_for(launch: Launch, kernel: Text) -> None:
    body = f"{PLACE} setp.gt.u32 %q1, %r40, 39; @%q1 ret; st.shared.u32 [%r43], %r40; bar.sync 0; ld.shared.u32 %r1, [tile+156]; st.global.u32 [%at4], %r1; ret;"
    result = launch(kernel(body), np.zeros(128, np.uint32), grid=(2,), block=(64,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == ([39] * 40 + [0] * 24) * 2


def test_one_barrier_may_stand_in_two_branches(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} setp.lt.u32 %q1, %r40, 32; @%q1 bra LOW;
    st.shared.u32 [%r43], %r40; bar.sync 0; ld.shared.u32 %r1, [%r43+-128]; bra OUT;
    LOW: st.shared.u32 [%r43], %r40; bar.sync 0; ld.shared.u32 %r1, [%r43+128];
    OUT: st.global.u32 [%at4], %r1; ret;"""
    result = launch(kernel(body), np.zeros(64, np.uint32), block=(64,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [index ^ 32 for index in range(64)]


@pytest.mark.instruction("bar")
def test_blocks_pass_their_barriers_by_themselves(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0; st.shared.u32 [%r43], %r40; bar.sync 0;
    TOP: setp.ge.u32 %q1, %r2, %r1; @%q1 bra OUT;
    add.u32 %r3, %r40, 1; and.b32 %r4, %r3, 63; shl.b32 %r5, %r4, 2; add.u32 %r6, %r42, %r5; ld.shared.u32 %r7, [%r6]; bar.sync 0;
    st.shared.u32 [%r43], %r7; bar.sync 0; add.u32 %r2, %r2, 1; bra TOP;
    OUT: ld.shared.u32 %r8, [%r43]; st.global.u32 [%at4], %r8; ret;"""
    for seed in (0, 3):
        result = launch(kernel(body), np.zeros(320, np.uint32), grid=(5,), block=(64,), schedule_seed=seed)
        assert not result.findings
        assert result.arrays["a0"].tolist() == [(index % 64 + index // 64) % 64 for index in range(320)]
        assert result.barriers == sum(1 + 2 * block for block in range(5))


@pytest.mark.instruction("bar")
def test_producers_arrive_and_consumers_wait(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} setp.lt.u32 %q1, %r40, 32; @%q1 bra PRODUCE;
    bar.sync 1, 64; ld.shared.u32 %r1, [%r43+-128]; st.global.u32 [%at4], %r1; ret;
    PRODUCE: mul.lo.u32 %r2, %r40, 3; st.shared.u32 [%r43], %r2; bar.arrive 1, 64; ret;"""
    result = launch(kernel(body), np.zeros(64, np.uint32), block=(64,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [0] * 32 + [3 * lane for lane in range(32)]


@pytest.mark.instruction("bar", "barrier")
@pytest.mark.parametrize("word", ["bar", "bar.cta", "barrier", "barrier.cta"])
def test_barriers_that_vote(word: str, launch: Launch, kernel: Text) -> None:
    body = """
    mov.u32 %r9, %ctaid.x; mov.u32 %r8, %tid.x; setp.lt.u32 %q1, %r8, %r9;
    bar.red.popc.u32 %r1, 0, %q1; bar.red.and.pred %q2, 0, %q1; bar.red.or.pred %q3, 0, %q1;
    selp.u32 %r2, 100, 0, %q2; selp.u32 %r3, 1000, 0, %q3; add.u32 %r4, %r1, %r2; add.u32 %r5, %r4, %r3; st.global.u32 [%at4], %r5; ret;
    """
    body = body.replace("bar.", f"{word}.").replace("bar.red", "bar.red.aligned" if word == "bar" else "bar.red")
    result = launch(kernel(body), np.zeros(48 * 64, np.uint32), grid=(64,), block=(48,))
    want = [min(block, 48) + 100 * (block >= 48) + 1000 * (block > 0) for block in range(64) for _ in range(48)]
    assert result.arrays["a0"].tolist() == want


def test_a_missing_barrier_between_warps_names_both_threads_and_the_line(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE}
    .loc 1 10 1
    st.shared.u32 [%r43], %r40; {{barrier}}
    xor.b32 %r1, %r41, 128; add.u32 %r2, %r42, %r1;
    .loc 1 12 1
    ld.shared.u32 %r3, [%r2]; st.global.u32 [%at4], %r3; ret;"""
    racy = launch(kernel(body.replace("{barrier}", "")), np.zeros(64, np.uint32), block=(64,))
    (finding,) = racy.findings
    assert (finding.code, finding.line, finding.buffer) == ("shared-race", 12, "tile")
    assert abs(finding.threads[0] - finding.threads[1]) == 32
    assert "line 10" in finding.message
    assert not launch(kernel(body.replace("{barrier}", "bar.sync 0;")), np.zeros(64, np.uint32), block=(64,)).findings


def test_writing_what_another_warp_has_read_is_a_race(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} st.shared.u32 [%r43], %r40; bar.sync 0;
    xor.b32 %r1, %r41, 128; add.u32 %r2, %r42, %r1; ld.shared.u32 %r3, [%r2]; {{barrier}}
    .loc 1 20 1
    add.u32 %r4, %r3, 1000; st.shared.u32 [%r43], %r4; ret;"""
    assert [
        (f.code, f.line)
        for f in launch(kernel(body.replace("{barrier}", "")), np.zeros(64, np.uint32), block=(64,)).findings
    ] == [("shared-race", 20)]
    assert not launch(kernel(body.replace("{barrier}", "bar.sync 0;")), np.zeros(64, np.uint32), block=(64,)).findings


@pytest.mark.parametrize(("value", "expected"), [("%r40", "error"), ("7", "note")])
def test_one_place_written_with_different_values_is_an_error_and_with_one_value_a_note(
    value: str, expected: str, launch: Launch, kernel: Text
) -> None:
    body = f"{PLACE} st.shared.u32 [tile], {value}; ret;"
    for result in (launch(kernel(body), np.zeros(threads, np.uint32), block=(threads,)) for threads in (64, 32)):
        (finding,) = result.findings
        assert (finding.code, finding.severity) == ("shared-race", expected)


def test_atomics_do_not_race_with_each_other_but_with_plain_accesses(launch: Launch, kernel: Text) -> None:
    zero = f"{PLACE} setp.eq.u32 %q1, %r40, 0; @%q1 st.shared.u32 [tile], 0; "
    add, read = "red.shared.add.u32 [tile], 1; ", "ld.shared.u32 %r1, [tile]; st.global.u32 [%at4], %r1; ret;"
    fine = f"{zero} bar.sync 0; {add} {add} bar.sync 0; {read}"
    assert not launch(kernel(fine), np.zeros(64, np.uint32), block=(64,)).findings
    assert codes(launch(kernel(f"{zero} {add} bar.sync 0; {read}"), np.zeros(64, np.uint32), block=(64,)))[0] in {
        "shared-race",
        "uninitialised-shared",
    }
    assert codes(launch(kernel(f"{zero} bar.sync 0; {add} {read}"), np.zeros(64, np.uint32), block=(64,))) == [
        "shared-race"
    ]


def test_reading_shared_memory_that_nobody_wrote(launch: Launch, kernel: Text) -> None:
    body = f"{PLACE} setp.lt.u32 %q1, %r40, 63; @%q1 st.shared.u32 [%r43], %r40; bar.sync 0; .loc 1 3 7\n ld.shared.u32 %r1, [%r43]; st.global.u32 [%at4], %r1; ret;"
    result = launch(kernel(body), np.zeros(128, np.uint32), grid=(2,), block=(64,))
    (finding,) = result.findings
    assert (finding.code, finding.line, finding.buffer, finding.offset, finding.threads) == (
        "uninitialised-shared",
        3,
        "tile",
        252,
        (63,),
    )
    assert not launch(kernel(body), np.zeros(128, np.uint32), grid=(2,), block=(64,), check=False).findings


def test_shared_memory_does_not_outlive_its_block(launch: Launch, kernel: Text) -> None:
    body = f"{PLACE} mov.u32 %r1, %ctaid.x; setp.eq.u32 %q1, %r1, 0; @%q1 st.shared.u32 [%r43], 1; ld.shared.u32 %r2, [%r43]; st.global.u32 [%at4], %r2; ret;"
    result = launch(kernel(body), np.zeros(64000, np.uint32), grid=(2000,))
    assert codes(result) == ["uninitialised-shared"]


REDUCE = """
extern "C" __global__ void reduce(const float* x, float* out, int n) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = t; i < n; i += blockDim.x) sum += x[i];
    part[t] = sum;
    SYNC_A
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k) part[t] += part[t + k];
        SYNC_B
    }
    if (t == 0) out[0] = part[0];
}
"""


@pytest.mark.parametrize("missing", ["SYNC_A", "SYNC_B"])
def test_each_barrier_of_a_reduction_is_needed(missing: str, cuda: Callable[..., Compiled], run_cuda: Launch) -> None:
    whole = REDUCE.replace("SYNC_A", "__syncthreads();").replace("SYNC_B", "__syncthreads();")
    broken = REDUCE.replace(missing, "").replace("SYNC_A", "__syncthreads();").replace("SYNC_B", "__syncthreads();")
    x = np.arange(1000, dtype=np.float32)
    arguments = (("x", x), ("out", np.zeros(1, np.float32)), np.int32(1000))
    for seed in (0, 1):
        good = run_cuda(cuda(whole), *arguments, block=(256,), schedule_seed=seed)
        assert not good.findings
        assert good.arrays["out"][0] == x.sum()
        assert codes(run_cuda(cuda(broken), *arguments, block=(256,), schedule_seed=seed))[0] == "shared-race"


def test_a_thread_that_goes_around_a_barrier_and_on_is_found(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} st.shared.u32 [%r43], %r40; setp.ge.u32 %q1, %r40, 16; @%q1 bra JOIN; .loc 1 7 4
    bar.sync 0; JOIN: .loc 1 8 4
    ld.shared.u32 %r1, [%r43]; st.global.u32 [%at4], %r1; ret;"""
    result = launch(kernel(body), np.zeros(128, np.uint32), grid=(2,), block=(64,))
    assert [(finding.code, finding.line) for finding in result.findings] == [("divergent-barrier", 7)]


def test_a_loop_with_a_barrier_that_threads_take_unevenly_is_found(launch: Launch, kernel: Text) -> None:
    body = """mov.u32 %r40, %tid.x; and.b32 %r2, %r40, 3; mov.u32 %r1, 0; TOP: bar.sync 0; add.u32 %r1, %r1, 1;
    setp.le.u32 %q1, %r1, %r2; @%q1 bra TOP; st.global.u32 [%at4], %r1; ret;"""
    assert "divergent-barrier" in codes(launch(kernel(body), np.zeros(64, np.uint32), block=(64,)))


@pytest.mark.parametrize(
    "body",
    [
        # An end with work of its own, and one that shares the end of the threads that have passed the barrier.
        "@%q1 bra EARLY; bar.sync 0; st.global.u32 [%at4], %r40; ret; EARLY: st.global.u32 [%at4], 7; ret;",
        "@%q1 bra OUT; TOP: bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %q2, %r1, 3; @%q2 bra TOP; st.global.u32 [%at4], %r1; OUT: ret;",
        "TOP: @%q1 bra OUT; bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %q2, %r1, 3; @%q2 bra TOP; st.global.u32 [%at4], %r1; OUT: ret;",
        "@%q1 bra JOIN; barrier.sync 1, 32; JOIN: st.global.u32 [%at4], %r40; ret;",
        "@%q1 bra JOIN; bar.sync 1, 32; JOIN: st.global.u32 [%at4], %r40; ret;",
    ],
)
def test_threads_that_end_early_or_have_no_part_in_a_barrier_are_no_fault(launch: Launch, kernel: Text, body: str) -> None:  # fmt: skip
    start = "mov.u32 %r40, %tid.x; mov.u32 %r1, 0; setp.ge.u32 %q1, %r40, 32;"
    assert not launch(kernel(f"{start} {body}"), np.zeros(64, np.uint32), block=(64,)).findings


def test_part_of_a_warp_at_a_barrier_with_a_thread_count_is_found(launch: Launch, kernel: Text) -> None:
    body = """mov.u32 %r40, %tid.x; and.b32 %r1, %r40, 1; setp.ne.u32 %q1, %r1, 0; @%q1 bra JOIN;
    bar.sync 1, 32; JOIN: st.global.u32 [%at4], %r40; ret;"""
    result = launch(kernel(body), np.zeros(64, np.uint32), block=(64,))
    assert codes(result) == ["divergent-barrier"]
    assert "whole warps" in result.findings[0].message


def test_an_end_that_is_copied_counts_for_its_own_block(launch: Launch, kernel: Text) -> None:
    body = """mov.u32 %r40, %tid.x; mov.u32 %r1, 0; setp.ge.u32 %q1, %r40, 32; @%q1 bra OUT;
    TOP: bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %q2, %r1, 3; @%q2 bra TOP; st.global.u32 [%at4], %r1; OUT: ret;"""
    result = launch(kernel(body), np.zeros(64, np.uint32), block=(64,))
    assert sorted(result.block_counts.values()) == [32, 64, 64, 96, 96]


@pytest.mark.instruction("bar")
@pytest.mark.parametrize("end", ["ret;", "bar.sync 3; ret;"], ids=["they end", "they wait for all"])
@pytest.mark.parametrize("seed", range(3))
def test_a_barrier_of_part_of_a_block_orders_no_other_warps(seed: int, end: str, launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} setp.lt.u32 %q1, %r40, 64; @%q1 bra FIRST;
    bar.sync 1, 64; .loc 1 5 4
    ld.shared.u32 %r1, [%r43+{{apart}}]; st.global.u32 [%at4], %r1; {end}
    FIRST: st.shared.u32 [%r43], %r40; {{sync}} st.global.u32 [%at4], 7; {end}"""
    apart = kernel(body.format(apart=-256, sync="bar.sync 2, 64;"))
    found = launch(apart, np.zeros(128, np.uint32), block=(128,), schedule_seed=seed).findings
    assert found
    assert {one.code for one in found} <= {"shared-race", "uninitialized-shared"}
    meeting = kernel(body.replace("bar.sync 1, 64;", "bar.sync 1, 128;").format(apart=-256, sync="bar.arrive 1, 128;"))
    result = launch(meeting, np.zeros(128, np.uint32), block=(128,), schedule_seed=seed)
    assert not result.findings
    assert result.arrays["a0"].tolist() == [7] * 64 + list(range(64))


@pytest.mark.instruction("bar")
@pytest.mark.parametrize("seed", range(3))
def test_warps_that_arrive_without_waiting_learn_nothing(seed: int, launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} mov.u32 %r2, 0; setp.lt.u32 %q1, %r40, 32; @%q1 bra PRODUCE;
    CONSUME: bar.sync 1, 64; ld.shared.u32 %r1, [%r43+-128]; {{emptied}} add.u32 %r2, %r2, 1; setp.lt.u32 %q2, %r2, 2;
    @%q2 bra CONSUME; st.global.u32 [%at4], %r1; ret;
    PRODUCE: st.shared.u32 [%r43], %r2; bar.arrive 1, 64; {{empty}} add.u32 %r2, %r2, 1; setp.lt.u32 %q2, %r2, 2;
    @%q2 bra PRODUCE; ret;"""
    racing = kernel(body.format(emptied="", empty=""))
    assert codes(launch(racing, np.zeros(64, np.uint32), block=(64,), schedule_seed=seed)) == ["shared-race"]
    waits = kernel(body.format(emptied="bar.arrive 2, 64;", empty="bar.sync 2, 64;"))
    result = launch(waits, np.zeros(64, np.uint32), block=(64,), schedule_seed=seed)
    assert not result.findings
    assert result.arrays["a0"].tolist() == [0] * 32 + [1] * 32


@pytest.mark.instruction("bar")
def test_what_one_part_knows_it_passes_on_to_the_next(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} shr.u32 %r3, %r40, 5; setp.eq.u32 %q1, %r3, 0; @%q1 bra FIRST; setp.eq.u32 %q1, %r3, 1; @%q1 bra SECOND;
    bar.sync 2, 64; ld.shared.u32 %r1, [%r43+-256]; st.global.u32 [%at4], %r1; ret;
    FIRST: st.shared.u32 [%r43], %r40; bar.arrive 1, 64; ret;
    SECOND: {{wait}} bar.arrive 2, 64; ret;"""
    passed = launch(kernel(body.format(wait="bar.sync 1, 64;")), np.zeros(96, np.uint32), block=(96,))
    assert not passed.findings
    assert passed.arrays["a0"].tolist()[64:] == list(range(32))
    apart = launch(kernel(body.format(wait="bar.arrive 1, 64;")), np.zeros(96, np.uint32), block=(96,))
    assert set(codes(apart)) <= {"shared-race", "uninitialized-shared"}
    assert codes(apart)


@pytest.mark.instruction("bar", "barrier")
@pytest.mark.parametrize("cluster", [None, (2,)], ids=["single blocks", "clusters"])
@pytest.mark.parametrize("fence", ["", "membar.gl; atom.global.add.u32 %r9, [%at4], 0;"], ids=["plain", "with fences"])
@pytest.mark.parametrize(
    "barrier",
    ["bar.sync 1, 64;", "bar.red.popc.u32 %r8, 1, 64, %q5;", "barrier.arrive 2, 64; barrier.sync 1, 64;"],
    ids=["sync", "vote", "after one that nobody waits at"],
)
def test_all_of_a_block_may_meet_at_a_barrier_with_a_count(
    barrier: str, fence: str, cluster: tuple[int] | None, launch: Launch, kernel: Text
) -> None:
    body = f"""{PLACE} setp.eq.u32 %q5, %r40, 0; {fence} st.shared.u32 [%r43], %r40; {barrier}
    xor.b32 %r1, %r41, 128; add.u32 %r2, %r42, %r1; ld.shared.u32 %r3, [%r2]; st.global.u32 [%at4], %r3; ret;"""
    result = launch(kernel(body), np.zeros(256, np.uint32), grid=(4,), block=(64,), cluster=cluster, schedule_seed=1)
    assert not result.findings
    assert result.arrays["a0"].tolist() == [index ^ 32 for index in range(64)] * 4


@pytest.mark.instruction("bar")
def test_threads_that_wait_for_all_meet_those_that_arrive_with_a_count(launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} st.shared.u32 [%r43], %r40; setp.lt.u32 %q1, %r40, 32; @%q1 bra ARRIVE;
    bar.sync 1; xor.b32 %r1, %r41, 384; add.u32 %r2, %r42, %r1; ld.shared.u32 %r3, [%r2]; st.global.u32 [%at4], %r3; ret;
    ARRIVE: bar.arrive 1, 128; ret;"""
    result = launch(kernel(body), np.zeros(128, np.uint32), block=(128,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [0] * 32 + [index ^ 96 for index in range(32, 128)]


@pytest.mark.instruction("bar")
@pytest.mark.parametrize("late", [True, False], ids=["learnt after the arrival", "learnt before it"])
def test_an_arrival_passes_on_what_it_has_learnt_by_then(late: bool, launch: Launch, kernel: Text) -> None:
    arrive, learn = (
        "bar.arrive 1, 64;",
        "LEARN: ld.acquire.gpu.global.u32 %r1, [%p0+1024]; setp.eq.u32 %q1, %r1, 0; @%q1 bra LEARN;",
    )
    body = f"""{PLACE} shr.u32 %r3, %r40, 5; setp.eq.u32 %q1, %r3, 0; @%q1 bra FIRST; setp.eq.u32 %q1, %r3, 1; @%q1 bra WRITER;
    WAIT: ld.relaxed.gpu.global.u32 %r1, [%p0+1028]; setp.eq.u32 %q1, %r1, 0; @%q1 bra WAIT;
    bar.sync 1, 64; ld.shared.u32 %r1, [tile]; st.global.u32 [%at4], %r1; ret;
    FIRST: {arrive + learn if late else learn + arrive} st.relaxed.gpu.global.u32 [%p0+1028], 1; ret;
    WRITER: setp.eq.u32 %q1, %r40, 32; @%q1 st.shared.u32 [tile], 9; @%q1 st.release.gpu.global.u32 [%p0+1024], 1; ret;"""
    result = launch(kernel(body), np.zeros(258, np.uint32), block=(96,))
    assert codes(result) == (["shared-race"] if late else [])


@pytest.mark.instruction("bar")
@pytest.mark.parametrize("last", ["bar.sync 2, 64;", "bar.sync 0;"], ids=["part", "all"])
def test_what_a_part_has_learnt_through_memory_it_passes_on(last: str, launch: Launch, kernel: Text) -> None:
    body = f"""{PLACE} mov.u32 %r4, %ctaid.x; setp.ne.u32 %q1, %r4, 0; @%q1 bra READ; setp.eq.u32 %q1, %r40, 0; @%q1 st.global.u32 [%p0+1024], 9;
    @%q1 st.release.gpu.global.u32 [%p0+1028], 1; ret;
    READ: shr.u32 %r3, %r40, 5; setp.eq.u32 %q1, %r3, 2; @%q1 bra SECOND; setp.ne.u32 %q1, %r40, 0; @%q1 bra FIRST;
    LEARN: ld.acquire.gpu.global.u32 %r1, [%p0+1028]; setp.eq.u32 %q1, %r1, 0; @%q1 bra LEARN;
    FIRST: bar.sync 1, 64; setp.eq.u32 %q1, %r3, 0; @%q1 bra REST; {{first}} bra TAKE;
    REST: {{rest}} bra TAKE;
    SECOND: {{first}}
    TAKE: ld.global.u32 %r1, [%p0+1024]; st.global.u32 [%at4+-384], %r1; ret;"""
    passed = kernel(body.format(first=last, rest=last if " 0;" in last else ""))
    result = launch(passed, np.zeros(258, np.uint32), grid=(2,), block=(96,))
    assert not result.findings
    assert result.arrays["a0"].tolist()[:96] == [9] * 96
    apart = kernel(body.format(first="", rest=""))
    assert codes(launch(apart, np.zeros(258, np.uint32), grid=(2,), block=(96,))) == ["global-race"]
