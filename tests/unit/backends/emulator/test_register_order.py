"""Registers of `wgmma.mma_async`: what a kernel may not do between fence and wait is found, at its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.records import FindingCode

Make = Callable[..., Any]
pytestmark = pytest.mark.instruction("wgmma")

FENCE, COMMIT, WAIT = (
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0;",
)
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d8, %d9, 1, 1, 1, 0, 0;"
OTHER = PRODUCT.replace("%f1, %f2, %f3, %f4", "%f5, %f6, %f7, %f8")
WIDE = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, %d8, %d9, 1, 1, 1, 0, 0;"
OF_REGISTERS = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, %d9, 1, 1, 1, 0;"
)
LOADS = "ld.global.f32 %f1, [%at4];"
STORES = "st.global.f32 [%at4], %f1;"
PARTS = "mov.u32 %r10, %tid1; mov.u32 %r11, %tid1; mov.u32 %r12, %tid1; mov.u32 %r13, %tid1;"


def found(launch: Make, kernel: Make, lines: list[str], **options: Any) -> list[tuple[Any, ...]]:
    """The findings of lines 1, 2, ... between a filled tile in shared memory and the end of the kernel."""
    numbered = "\n".join(f".loc 1 {number} 1\n{line}" for number, line in enumerate(lines, 1))
    body = f"""
    mov.u32 %r1, tile; mad.lo.u32 %r1, %tid1, 16, %r1; mov.b32 %r2, 0; st.shared.v4.b32 [%r1], {{%r2, %r2, %r2, %r2}};
    st.shared.v4.b32 [%r1+2048], {{%r2, %r2, %r2, %r2}}; fence.proxy.async; bar.sync 0;
    mov.b64 %d8, {1024 >> 4 << 16 | 128 >> 4 << 32}; mov.b64 %d9, {2048 >> 4 | 256 >> 4 << 16 | 128 >> 4 << 32};
    {numbered}
    ret;
    """
    text = kernel(body, before=".shared .align 1024 .b8 tile[4096];")
    done = launch(text, np.zeros(128, np.float32), block=(128,), **options)
    return [(one.code, one.severity, one.line, one.message) for one in done.findings]


MISUSES = {
    "read before the wait": ([FENCE, PRODUCT, COMMIT, STORES], 4, r"reads an accumulator .* at line 2, .*wgmma.wait_group"),
    "read before the right wait": (
        [FENCE, PRODUCT, COMMIT, OTHER, COMMIT, WAIT.replace("0", "1"), STORES.replace("f1", "f5")], 7, "reads .* line 4",
    ),
    "read of a product in no group": ([FENCE, PRODUCT, WAIT, STORES], 4, "reads an accumulator"),
    "read after a move": ([FENCE, PRODUCT, COMMIT, "mov.f32 %f9, %f1;", STORES.replace("f1", "f9")], 5, "reads .* line 2"),
    "changed before the wait": ([FENCE, PRODUCT, COMMIT, LOADS, WAIT], 4, r"changes an accumulator .* line 2"),
    "cleared before the wait": ([FENCE, PRODUCT, COMMIT, "mov.f32 %f1, 0f00000000;", WAIT], 4, "changes an accumulator"),
    "changed part": (
        [PARTS, FENCE, OF_REGISTERS, COMMIT, "add.u32 %r10, %r10, 1;", WAIT], 5, r"a register of A .* at line 3 ",
    ),
    "no fence": ([PRODUCT, COMMIT, WAIT], 1, r"before the first wgmma.fence"),
    "loaded after the fence": ([FENCE, LOADS, PRODUCT, COMMIT, WAIT], 3, r"accessed at line 2, after the last wgmma.fence"),
    "used between two products": (
        [FENCE, PRODUCT, COMMIT, WAIT, STORES, PRODUCT, COMMIT, WAIT], 6, "accessed at line 5, after the last wgmma.fence",
    ),
    "part computed after the fence": (
        [FENCE, "add.u32 %r12, %tid1, 1;", OF_REGISTERS, COMMIT, WAIT], 3, "accessed at line 2",
    ),
    "chained with another shape": ([FENCE, PRODUCT, WIDE, COMMIT, WAIT], 3, r"at line 2 does, which has another shape"),
    "accumulator as a part": (
        [FENCE, PRODUCT.replace("{%f1, %f2, %f3, %f4}", "{%r10, %r11, %r12, %r13}"), OF_REGISTERS, COMMIT, WAIT],
        3, "reads an accumulator .* line 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_found_at_its_line(launch: Make, kernel: Make, name: str) -> None:
    lines, line, message = MISUSES[name]
    findings = found(launch, kernel, lines)
    assert [one[:3] for one in findings] == [(FindingCode.REGISTER_RACE, "error", line)]
    assert re.search(message, findings[0][3])


def test_a_part_that_is_read_before_the_wait_is_a_warning(launch: Make, kernel: Make) -> None:
    lines = [PARTS, FENCE, OF_REGISTERS, COMMIT, "st.global.b32 [%at4], %r10;", WAIT]
    (finding,) = found(launch, kernel, lines)
    assert finding[:3] == (FindingCode.REGISTER_RACE, "warning", 5)


RIGHT = {
    "one product": [FENCE, PRODUCT, COMMIT, WAIT, STORES],
    "chained products of one shape": [LOADS, FENCE, PRODUCT, PRODUCT, COMMIT, PRODUCT, COMMIT, WAIT, STORES],
    "an older group is complete": [FENCE, PRODUCT, COMMIT, OTHER, COMMIT, WAIT.replace("0", "1"), STORES, WAIT],
    "a constant after the fence": [FENCE, "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1;", PRODUCT, COMMIT, WAIT, STORES],
    "moved while in flight": [
        FENCE, PRODUCT, COMMIT, "mov.f32 %f9, %f1; mov.f32 %f1, %f9;", PRODUCT, COMMIT, WAIT, STORES,
    ],
    "part after a fence of its own": [PARTS, FENCE, OF_REGISTERS, COMMIT, WAIT, "add.u32 %r10, %r10, 1;", FENCE, OF_REGISTERS, COMMIT, WAIT],
    "another shape after a fence": [FENCE, PRODUCT, COMMIT, WAIT, FENCE, WIDE, COMMIT, WAIT],
    "a loop that keeps one group in flight": [
        "mov.u32 %r20, 0;", f"LOOP: {FENCE}", PRODUCT, COMMIT, WAIT.replace("0", "1"),
        "add.u32 %r20, %r20, 1; setp.lt.u32 %q5, %r20, 4; @%q5 bra LOOP;", WAIT, STORES,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_order_is_no_finding(launch: Make, kernel: Make, name: str) -> None:
    assert found(launch, kernel, RIGHT[name]) == []
    assert found(launch, kernel, RIGHT[name], schedule_seed=3) == []


SKIPS = "setp.lt.u32 %q4, %tid1, {}; @%q4 bra AFTER;"


@pytest.mark.parametrize(("skipping", "threads"), [(32, "32, 33"), (16, "16, 17"), (96, "96, 97")])
def test_a_warpgroup_that_is_not_complete_is_found(launch: Make, kernel: Make, skipping: int, threads: str) -> None:
    findings = found(launch, kernel, [FENCE, SKIPS.format(skipping), PRODUCT, f"AFTER: {COMMIT}", WAIT])
    assert [one[:2] for one in findings] == [(FindingCode.SHUFFLE_MASK, "error")]
    assert (findings[0][2], f"threads {threads}" in findings[0][3]) == (3, True)


def test_a_block_whose_warps_are_no_warpgroup_is_found(launch: Make, kernel: Make) -> None:
    product = PRODUCT.replace("%d8", "0").replace("%d9", "0")
    text = kernel(f".loc 1 1 1\n{FENCE} {product} {COMMIT} {WAIT} ret;", before=".shared .b8 tile[4096];")
    done = launch(text, np.zeros(96, np.float32), block=(96,))
    assert (FindingCode.SHUFFLE_MASK, 1) in [(finding.code, finding.line) for finding in done.findings]
    assert "128 threads of four warps in a row, and only 96 take part" in done.findings[0].message


def test_threads_that_give_different_descriptors_are_found(launch: Make, kernel: Make) -> None:
    findings = found(launch, kernel, [FENCE, "cvt.u64.u32 %d8, %tid1;", PRODUCT, COMMIT, WAIT])
    assert (FindingCode.SHUFFLE_MASK, "error", 3) in [one[:3] for one in findings]


def test_a_descriptor_that_leads_out_of_shared_memory_is_found(launch: Make, kernel: Make) -> None:
    (finding,) = found(
        launch, kernel, [FENCE, f"mov.b64 %d8, {3072 >> 4 | 64 << 16 | 8 << 32};", PRODUCT, COMMIT, WAIT]
    )
    assert finding[:3] == (FindingCode.OUT_OF_BOUNDS_READ, "error", 3)
    assert "byte 4096 of shared memory, of which the block has 4096 bytes" in finding[3]
