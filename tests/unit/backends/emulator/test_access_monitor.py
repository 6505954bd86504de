"""Operands of `wgmma.mma_async` in shared memory: overwritten too early, stored without a fence, or without a barrier."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.records import FindingCode

Make = Callable[..., Any]
pytestmark = pytest.mark.instruction("wgmma", "fence")

PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d8, %d9, 1, 1, 1, 0, 0;"
SECOND = PRODUCT.replace("%d8", "%d10")
FENCE, COMMIT, WAIT = (
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0;",
)
BARRIER, ALL, PROXY = "bar.sync 0;", "bar.sync 1, 256;", "fence.proxy.async.shared::cta;"
ZEROS = "{%r3, %r3, %r3, %r3}"
FILL = f"st.shared.v4.b32 [%r1], {ZEROS}; st.shared.v4.b32 [%r1+2048], {ZEROS}; st.shared.v4.b32 [%r1+4096], {ZEROS};"
"""Threads 0 to 127 write A at 0 (2048 bytes), B at 2048 and another A at 4096, 16 bytes each."""
STORE_A = f"st.shared.v4.b32 [%r1], {ZEROS};"
STORE_SECOND = f"st.shared.v4.b32 [%r1+4096], {ZEROS};"
FIRST_HALF, SECOND_HALF = "setp.ge.u32 %q3, %tid1, 128; @%q3 bra {};", "setp.lt.u32 %q3, %tid1, 128; @%q3 bra {};"


def found(launch: Make, kernel: Make, lines: list[str], threads: int = 128, **options: Any) -> list[tuple[Any, ...]]:
    """The findings of lines 1, 2, ..., after operands were set up; thread t has address 16 (t % 128) in %r1."""
    numbered = "\n".join(f".loc 1 {number} 1\n{line}" for number, line in enumerate(lines, 1))
    at_a, at_b, at_second = (
        start >> 4 | leading >> 4 << 16 | 128 >> 4 << 32 for start, leading in ((0, 1024), (2048, 128), (4096, 1024))
    )
    body = f"""
    mov.u32 %r1, tile; and.b32 %r2, %tid1, 127; mad.lo.u32 %r1, %r2, 16, %r1; mov.b32 %r3, 0;
    mov.b64 %d8, {at_a}; mov.b64 %d9, {at_b}; mov.b64 %d10, {at_second};
    {numbered}
    ret;
    """
    text = kernel(body, before=".shared .align 1024 .b8 tile[6160];")
    done = launch(text, np.zeros(threads, np.float32), block=(threads,), **options)
    return [(one.code, one.severity, one.line, one.message) for one in done.findings]


MISUSES = {
    "overwritten before the wait": (
        128, [FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, STORE_A, WAIT], 7, "wgmma.mma_async at line 5 may still read; wait",
    ),
    "overwritten in the wrong order of groups": (
        128,
        [FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, SECOND, COMMIT, "wgmma.wait_group.sync.aligned 1;", BARRIER, STORE_SECOND, WAIT],
        11, "wgmma.mma_async at line 7 may still read",
    ),
    "overwritten by other threads without a barrier": (
        256,
        [FIRST_HALF.format("OTHERS"), FILL, PROXY, "OTHERS: " + BARRIER, SECOND_HALF.format("MINE"), STORE_A, "ret;",
         "MINE: " + FENCE, PRODUCT, COMMIT, WAIT],
        None, "nothing orders the two|may still read",
    ),
    "overwritten by other threads after a barrier before the wait": (
        256,
        [FIRST_HALF.format("OTHERS"), FILL, PROXY, "OTHERS: " + BARRIER, SECOND_HALF.format("MINE"), ALL, STORE_A, "ret;",
         "MINE: " + FENCE, PRODUCT, COMMIT, ALL, WAIT],
        7, "wgmma.mma_async at line 10 may still read",
    ),
    "stored without a fence": (
        128, [FILL, BARRIER, FENCE, PRODUCT, COMMIT, WAIT], 4, "has written at line 1, and no proxy fence is between",
    ),
    "fenced before the store": (
        128, [PROXY, FILL, BARRIER, FENCE, PRODUCT, COMMIT, WAIT], 5, "has written at line 2, and no proxy fence",
    ),
    "fenced by one thread before the barrier": (
        128,
        [FILL, "setp.eq.u32 %q4, %tid1, 0; @%q4 fence.proxy.async;", BARRIER, FENCE, PRODUCT, COMMIT, WAIT],
        5, "which thread 64 has written at line 1",
    ),
    "no barrier": (128, [FILL, PROXY, FENCE, PRODUCT, COMMIT, WAIT], 4, "nothing orders the two"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_found(launch: Make, kernel: Make, name: str) -> None:
    threads, lines, line, message = MISUSES[name]
    findings = found(launch, kernel, lines, threads)
    assert [one[:2] for one in findings] == [(FindingCode.SHARED_RACE, "error")]
    assert line in {None, findings[0][2]}
    assert re.search(message, findings[0][3])


ARRIVE = "mbarrier.arrive.shared.b64 _, [tile+6144];"
AWAIT = "TRY{0}: mbarrier.try_wait.parity.shared.b64 %q5, [tile+6144], 0; @!%q5 bra TRY{0};"
RIGHT = {
    "fenced by the storing threads": (128, [FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, WAIT]),
    "fenced by the reading threads": (128, [FILL, BARRIER, PROXY, FENCE, PRODUCT, COMMIT, WAIT]),
    "overwritten after wait and barrier": (
        128, [FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, WAIT, BARRIER, FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, WAIT],
    ),
    "the older operand is overwritten": (
        128,
        [FILL, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, SECOND, COMMIT, "wgmma.wait_group.sync.aligned 1;", BARRIER, STORE_A, WAIT],
    ),
    "overwritten by other threads that an mbarrier tells": (
        256,
        ["setp.eq.u32 %q4, %tid1, 0; @%q4 mbarrier.init.shared.b64 [tile+6144], 1;", FIRST_HALF.format("OTHERS"), FILL, PROXY,
         "OTHERS: " + BARRIER, SECOND_HALF.format("MINE"), AWAIT.format(1), STORE_A, "ret;",
         "MINE: " + FENCE, PRODUCT, COMMIT, WAIT, "setp.eq.u32 %q4, %tid1, 77; @%q4 " + ARRIVE],
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 3, 4])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_order_is_no_finding(launch: Make, kernel: Make, name: str, seed: int) -> None:
    threads, lines = RIGHT[name]
    assert found(launch, kernel, lines, threads, schedule_seed=seed) == []


def test_two_warpgroups_may_read_the_same_operand(launch: Make, kernel: Make) -> None:
    lines = [
        FIRST_HALF.format("OTHERS"),
        FILL,
        PROXY,
        "OTHERS: " + BARRIER,
        FENCE,
        PRODUCT,
        COMMIT,
        WAIT,
        BARRIER,
        STORE_A,
    ]
    lines[-1] = "setp.lt.u32 %q4, %tid1, 128; @%q4 " + STORE_A
    assert found(launch, kernel, lines, 256) == []
    early = [*lines[:-2], lines[-1]]
    assert [one[:3] for one in found(launch, kernel, early, 256)] == [(FindingCode.SHARED_RACE, "error", 9)]


def test_an_operand_that_was_never_written_is_found(launch: Make, kernel: Make) -> None:
    findings = found(launch, kernel, [STORE_A, PROXY, BARRIER, FENCE, PRODUCT, COMMIT, WAIT])
    assert [one[:3] for one in findings] == [(FindingCode.UNINITIALISED_SHARED, "error", 5)]


def test_a_copy_needs_no_fence(launch: Make, kernel: Make) -> None:
    copies = " ".join(f"cp.async.ca.shared.global [%r1+{at}], [%at16], 16;" for at in (0, 2048))
    text = kernel(
        f"""
        mov.u32 %r1, tile; mad.lo.u32 %r1, %tid1, 16, %r1; mul.wide.u32 %at16, %tid1, 16; add.s64 %at16, %at16, %p0;
        {copies} cp.async.wait_all; {BARRIER} mov.b64 %d8, {64 << 16 | 8 << 32}; mov.b64 %d9, {128 | 8 << 16 | 8 << 32};
        {FENCE} {PRODUCT} {COMMIT} {WAIT} ret;
        """,
        before=".shared .align 1024 .b8 tile[4096];",
        declarations=".reg .b64 %at16;",
    )
    assert launch(text, np.zeros(512, np.float32), block=(128,)).findings == ()
