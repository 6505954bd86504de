"""Branches, loops, calls and the order in which threads run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import EmulationTooLarge, RunResult, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.records import Compiled, Target

Launch = Callable[..., RunResult]
Text = Callable[..., str]


def test_a_loop_with_a_different_count_per_thread(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 15; mov.u32 %r2, 0; mov.u32 %r3, 0;
    TOP: setp.ge.u32 %q1, %r3, %r1; @%q1 bra OUT; mad.lo.u32 %r2, %r3, %r3, %r2; add.u32 %r3, %r3, 1; bra TOP;
    OUT: activemask.b32 %r4; setp.eq.u32 %q2, %r4, 0xffffffff; selp.u32 %r5, 100000, 0, %q2; add.u32 %r6, %r2, %r5;
    st.global.u32 [%at4], %r6; ret;
    """
    found = launch(kernel(body), np.zeros(128, np.uint32), grid=(2,), block=(64,)).arrays["a0"]
    # Lanes leave the loop at different times and meet again after it.
    assert found.tolist() == [100000 + sum(k * k for k in range(index & 15)) for index in range(128)]


@pytest.mark.instruction("ret", "exit")
def test_nested_branches_and_early_exits(launch: Launch, kernel: Text) -> None:
    body = """
    setp.ge.u32 %q1, %tid1, 90; @%q1 ret;
    rem.u32 %r1, %tid1, 3; setp.eq.u32 %q2, %r1, 0; @%q2 bra A; setp.eq.u32 %q3, %r1, 1; @%q3 bra B;
    mov.u32 %r2, 30; bra JOIN;
    A: mov.u32 %r2, 10; and.b32 %r3, %tid1, 1; setp.ne.u32 %q4, %r3, 0; @%q4 add.u32 %r2, %r2, 1; bra JOIN;
    B: mov.u32 %r2, 20; setp.gt.u32 %q5, %tid1, 60; @%q5 exit;
    JOIN: st.global.u32 [%at4], %r2; ret;
    """
    found = launch(kernel(body), np.zeros(128, np.uint32), grid=(4,)).arrays["a0"].tolist()

    def want(index: int) -> int:
        if index >= 90 or (index % 3 == 1 and index > 60):
            return 0
        return 10 + index % 2 if index % 3 == 0 else {1: 20, 2: 30}[index % 3]

    assert found == [want(index) for index in range(128)]


def test_an_indexed_branch(launch: Launch, kernel: Text) -> None:
    body = """
    ts: .branchtargets L0, L1, L2;
    rem.u32 %r1, %tid1, 3; brx.idx %r1, ts;
    L0: mov.u32 %r2, 5; bra OUT; L1: mov.u32 %r2, 6; bra OUT; L2: mov.u32 %r2, 7;
    OUT: st.global.u32 [%at4], %r2; ret;
    """
    assert launch(kernel(body), np.zeros(32, np.uint32)).arrays["a0"].tolist() == [5 + index % 3 for index in range(32)]


FUNCTIONS = """
.func (.param .b32 out) twice(.param .b32 in) {
.reg .b32 %r<4>; ld.param.u32 %r1, [in]; setp_free: shl.b32 %r2, %r1, 1; st.param.b32 [out], %r2; ret; }
.func (.param .b32 out) square(.param .b32 in) {
.reg .b32 %r<4>; ld.param.u32 %r1, [in]; mul.lo.u32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret; }
.func (.param .b32 out) twicesquare(.param .b32 in) {
.reg .b32 %r<4>; .reg .pred %q1; ld.param.u32 %r1, [in]; setp.gt.u32 %q1, %r1, 20; @%q1 bra BIG;
{ .param .b32 p; .param .b32 r; st.param.b32 [p], %r1; call.uni (r), square, (p); ld.param.b32 %r2, [r]; }
{ .param .b32 p; .param .b32 r; st.param.b32 [p], %r2; call.uni (r), twice, (p); ld.param.b32 %r3, [r]; }
st.param.b32 [out], %r3; ret; BIG: st.param.b32 [out], 0; ret; }
"""


def test_functions_call_functions(launch: Launch, kernel: Text) -> None:
    body = """
    { .param .b32 p; .param .b32 r; st.param.b32 [p], %tid1; call.uni (r), twicesquare, (p); ld.param.b32 %r5, [r]; }
    st.global.u32 [%at4], %r5; ret;
    """
    found = launch(kernel(body, before=FUNCTIONS), np.zeros(32, np.uint32)).arrays["a0"]
    assert found.tolist() == [2 * index * index if index <= 20 else 0 for index in range(32)]


def test_a_parameter_of_a_call_is_read_through_its_address(launch: Launch, kernel: Text) -> None:
    before = """
    .func (.param .b32 out) second(.param .align 4 .b8 in[8]) {
    .reg .b32 %r<4>; .reg .b64 %d<4>; mov.b64 %d1, in; add.s64 %d2, %d1, 4; ld.param.u32 %r1, [%d2]; st.param.b32 [out], %r1; ret; }
    """
    body = """
    { .param .align 4 .b8 p[8]; .param .b32 r; st.param.b32 [p+0], 5; st.param.b32 [p+4], %tid1;
    call.uni (r), second, (p); ld.param.b32 %r5, [r]; }
    st.global.u32 [%at4], %r5; ret;
    """
    assert launch(kernel(body, before=before), np.zeros(32, np.uint32)).arrays["a0"].tolist() == list(range(32))


def test_a_call_through_a_pointer_goes_where_it_points(launch: Launch, kernel: Text) -> None:
    before = FUNCTIONS + ".global .align 8 .u64 table[2] = {twice, square};\n"
    body = """
    and.b32 %r1, %tid1, 1; mul.wide.u32 %d1, %r1, 8; mov.u64 %d2, table; add.s64 %d3, %d2, %d1; ld.global.u64 %d4, [%d3];
    { .param .b32 p; .param .b32 r; st.param.b32 [p], %tid1;
    proto : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r), %d4, (p), proto; ld.param.b32 %r5, [r]; }
    st.global.u32 [%at4], %r5; ret;
    """
    result = launch(kernel(body, before=before), np.zeros(32, np.uint32))
    assert result.arrays["a0"].tolist() == [index * index if index % 2 else 2 * index for index in range(32)]
    wild = launch(
        kernel(body.replace("ld.global.u64 %d4, [%d3];", "mov.u64 %d4, 3;"), before=before), np.zeros(32, np.uint32)
    )
    assert [finding.code for finding in wild.findings] == ["trap"]


def refused(text: str, compiled: Callable[..., Compiled], gpu: Target) -> UnsupportedInstruction:
    with pytest.raises(UnsupportedInstruction) as caught:
        EmulatorBackend().load(compiled(text), gpu)
    return caught.value


@pytest.mark.parametrize(
    ("instruction", "word"),
    [
        ("frobnicate.u32 %r1, %r2;", "frobnicate.u32"),
        ("tex.2d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [t, {%r1,%r2}];", "tex.2d"),
        ("ld.shared::nowhere.u32 %r1, [%r2];", "shared::nowhere"),
        ("mov.u32 %r1, %clusterodd;", "%clusterodd"),
        ("add.u32.strange %r1, %r2, %r3;", "strange"),
        ("setp.wat.u32 %q1, %r1, %r2;", "wat"),
    ],
)
def test_what_is_unknown_is_refused_by_name_and_line(
    instruction: str, word: str, kernel: Text, compiled: Callable[..., Compiled], gpu: Target
) -> None:
    finding = refused(kernel(f".loc 1 9 5\n {instruction} ret;"), compiled, gpu).finding
    assert (finding.code, finding.severity, finding.line, finding.column) == ("unsupported-instruction", "error", 9, 5)
    assert word in finding.message


def test_unknown_functions_and_text_are_refused_with_what_to_do_instead(
    kernel: Text, compiled: Callable[..., Compiled], gpu: Target
) -> None:
    def message(body: str, before: str = "") -> str:
        return refused(kernel(body, before=before), compiled, gpu).finding.message

    for name in ("malloc", "free"):
        told = message(f"call.uni {name}; ret;", f".extern .func {name}();\n")
        assert name in told
        assert "allocate the memory before the launch" in told
    assert "cudaDeviceSynchronize" in message(
        "call.uni cudaDeviceSynchronize; ret;", ".extern .func cudaDeviceSynchronize();\n"
    )
    assert "cannot read" in message("this is $$$ not PTX;")
    assert "no entry" in refused(".version 8.0\n.target sm_90\n", compiled, gpu).finding.message


@pytest.mark.instruction("trap", "brkpt")
@pytest.mark.parametrize("word", ["trap", "brkpt"])
def test_a_trap_ends_the_launch(word: str, launch: Launch, kernel: Text) -> None:
    text = f"setp.eq.u32 %q1, %tid1, 7; .loc 1 5 3\n @%q1 {word}; st.global.u32 [%at4], 1; ret;"
    result = launch(kernel(text), np.zeros(32, np.uint32))
    (finding,) = result.findings
    assert (finding.code, finding.line, finding.threads) == ("trap", 5, (7,))
    assert word in finding.message
    assert not result.arrays["a0"].any()


def test_a_loop_that_cannot_end_is_a_hang_at_once(launch: Launch, kernel: Text) -> None:
    result = launch(
        kernel("TOP: .loc 1 8 2\n ld.volatile.global.u32 %r1, [%p0]; setp.eq.u32 %q1, %r1, 0; @%q1 bra TOP; ret;"),
        np.zeros(32, np.uint32),
    )
    assert [(finding.code, finding.line) for finding in result.findings] == [("hang", 8)]
    assert result.ptx_instructions < 5_000_000


def test_a_loop_that_always_changes_is_a_hang_at_the_step_limit(launch: Launch, kernel: Text) -> None:
    body = "TOP: add.u32 %r1, %r1, 1; st.global.u32 [%at4], %r1; setp.ne.u32 %q1, %r1, 0; @%q1 bra TOP; ret;"
    result = launch(kernel(body), np.zeros(32, np.uint32), step_limit=5000)
    assert [finding.code for finding in result.findings] == ["hang"]
    assert "5000" in result.findings[0].message


def test_the_step_limit_is_per_thread_and_not_for_all_together(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 31; mov.u32 %r2, 0;
    EACH: setp.ne.u32 %q1, %r1, %r2; @%q1 bra NEXT; mov.u32 %r3, 0;
    SPIN: add.u32 %r3, %r3, 1; setp.lt.u32 %q2, %r3, 50; @%q2 bra SPIN;
    NEXT: add.u32 %r2, %r2, 1; setp.lt.u32 %q3, %r2, 32; @%q3 bra EACH;
    st.global.u32 [%at4], %r3; ret;
    """
    result = launch(kernel(body), np.zeros(32, np.uint32), step_limit=600)
    assert not result.findings
    assert result.arrays["a0"].tolist() == [50] * 32


def test_too_large_a_launch_is_refused_and_not_called_a_hang(launch: Launch, kernel: Text) -> None:
    body = "TOP: add.u32 %r1, %r1, 1; setp.lt.u32 %q1, %r1, 1000; @%q1 bra TOP; ret;"
    with pytest.raises(EmulationTooLarge, match="limit") as caught:
        launch(kernel(body), np.zeros(32, np.uint32), grid=(1 << 20,), block=(256,), total_limit=10_000_000)
    assert caught.value.limit == 10_000_000
    with pytest.raises(EmulationTooLarge):
        launch(kernel("ret;"), np.zeros(32, np.uint32), grid=(2**31 - 1, 2), block=(1024,))


def test_a_thread_that_waits_for_a_later_one_gets_its_turn(launch: Launch, kernel: Text) -> None:
    body = """
    setp.eq.u32 %q1, %tid1, 0; @!%q1 bra WRITER;
    WAIT: ld.volatile.global.u32 %r1, [%p1]; setp.eq.u32 %q2, %r1, 0; @%q2 bra WAIT;
    st.global.u32 [%at4], %r1; bra OUT;
    WRITER: st.global.u32 [%at4], 5; setp.eq.u32 %q3, %tid1, 63; @%q3 st.volatile.global.u32 [%p1], 9;
    OUT: ret;
    """
    result = launch(kernel(body, 2), np.zeros(64, np.uint32), np.zeros(1, np.uint32), grid=(2,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [9] + [5] * 63


def test_a_spin_lock_is_taken_by_every_lane_in_turn(launch: Launch, kernel: Text) -> None:
    body = """
    AGAIN: atom.global.cas.b32 %r1, [%p1], 0, 1; setp.ne.u32 %q1, %r1, 0; @%q1 bra AGAIN;
    ld.volatile.global.u32 %r2, [%p0]; add.u32 %r3, %r2, 1; st.volatile.global.u32 [%p0], %r3; membar.gl;
    atom.global.exch.b32 %r4, [%p1], 0; ret;
    """
    result = launch(kernel(body, 2), np.zeros(1, np.uint32), np.zeros(1, np.uint32), grid=(3,))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [96]


def test_seeds_permute_blocks_and_warps_and_nothing_else(launch: Launch, kernel: Text) -> None:
    body = "mov.u32 %r2, 1; atom.global.add.u32 %r1, [%p1], %r2; st.global.u32 [%at4], %r1; ret;"
    orders = [
        launch(
            kernel(body, 2),
            np.zeros(256, np.uint32),
            np.zeros(1, np.uint32),
            grid=(4,),
            block=(64,),
            schedule_seed=seed,
        ).arrays["a0"]
        for seed in (0, 0, 1, 1, 2)
    ]
    assert np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders[2], orders[3])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[2], orders[4])
    assert all(sorted(order.tolist()) == list(range(256)) for order in orders)


def test_seeds_move_buffers(launch: Launch, kernel: Text) -> None:
    body = "setp.eq.u32 %q1, %tid1, 0; @%q1 st.global.v2.u64 [%p0], {%p0, %p1}; ret;"
    seen = set()
    for seed in range(8):
        first, second = (
            launch(kernel(body, 2), np.zeros(2, np.uint64), np.zeros(1), schedule_seed=seed).arrays["a0"].tolist()
        )
        assert first % 256 == 0
        seen.add((first < second, first))
    assert {order for order, _ in seen} == {True, False}
    assert len(seen) > 4


def test_special_registers_name_the_thread(launch: Launch, kernel: Text) -> None:
    body = """
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;
    mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y; mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y;
    mad.lo.u32 %r11, %r3, %r8, %r2; mad.lo.u32 %r12, %r11, %r7, %r1; mad.lo.u32 %r13, %r6, %r10, %r5; mad.lo.u32 %r14, %r13, %r9, %r4;
    mad.lo.u32 %r15, %r14, 30, %r12; mul.wide.u32 %d1, %r15, 4; add.s64 %d2, %p0, %d1;
    mov.u32 %r16, %laneid; st.global.u32 [%d2], %r16; ret;
    """
    result = launch(kernel(body), np.full(30 * 24, 99, np.uint32), grid=(4, 3, 2), block=(5, 3, 2))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [index % 30 for index in range(30 * 24)]


def test_what_no_gpu_launches_is_a_launch_failure(launch: Launch, kernel: Text) -> None:
    for options in (
        {"block": (2048,)},
        {"block": (1, 1, 128)},
        {"shared": 300_000},
        {"grid": (1, 70_000)},
        {"grid": (0,)},
    ):
        result = launch(kernel("ret;"), np.zeros(4, np.uint32), **options)
        assert [finding.code for finding in result.findings] == ["launch-failure"], options


@pytest.mark.instruction("mov")
def test_the_clock_goes_on(launch: Launch, kernel: Text) -> None:
    body = "mov.u64 %d1, %clock64; nanosleep.u32 5; mov.u64 %d2, %clock64; setp.gt.u64 %q1, %d2, %d1; selp.u32 %r1, 1, 0, %q1; st.global.u32 [%at4], %r1; ret;"
    assert launch(kernel(body), np.zeros(32, np.uint32)).arrays["a0"].all()


def test_labels_of_nested_scopes_are_their_own(launch: Launch, kernel: Text) -> None:
    loop = """
    {{ .reg .pred more; .reg .b32 left; mov.u32 left, {count};
    AGAIN: add.u32 %r1, %r1, {step}; sub.u32 left, left, 1; setp.eq.u32 more, left, 0; @more bra DONE; bra AGAIN; DONE: }}
    """
    body = f"mov.u32 %r1, 0; {loop.format(count=3, step=1)} {loop.format(count=2, step=10)} st.global.u32 [%at4], %r1; ret;"
    assert launch(kernel(body), np.zeros(32, np.uint32)).arrays["a0"].tolist() == [23] * 32
