"""Exchange within a warp, with whole, partial and split warps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kernelmate.backends.base import RunResult

Launch = Callable[..., RunResult]
Text = Callable[..., str]
FULL = 0xFFFFFFFF


def shuffled(mode: str, value: list[int], step: int, clamp: int) -> list[tuple[int, bool]]:
    """The ISA's pseudocode of shfl for one warp."""
    result = []
    for lane in range(32):
        segment, bound = clamp >> 8 & 31, clamp & 31
        highest = (lane & segment) | (bound & ~segment & 31)
        lowest = lane & segment
        step5 = step & 31
        if mode == "up":
            source, valid = lane - step5, lane - step5 >= highest
        elif mode == "down":
            source, valid = lane + step5, lane + step5 <= highest
        elif mode == "bfly":
            source, valid = lane ^ step5, lane ^ step5 <= highest
        else:
            source = lowest | (step5 & ~segment)
            valid = source <= highest
        result.append((value[source if valid else lane], valid))
    return result


@pytest.mark.instruction("shfl")
@pytest.mark.parametrize("step", [0, 1, 5, 16, 31, 33])
@pytest.mark.parametrize("width", [32, 16, 8, 2])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_in_segments(mode: str, width: int, step: int, launch: Launch, kernel: Text) -> None:
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f"""
    mul.lo.u32 %r1, %tid1, 7; shfl.sync.{mode}.b32 %r2|%q1, %r1, {step}, {clamp}, 0xffffffff;
    selp.u32 %r3, 1000, 0, %q1; add.u32 %r4, %r2, %r3; st.global.u32 [%at4], %r4; ret;
    """
    result = launch(kernel(body), np.zeros(96, np.uint32), grid=(3,))
    assert not result.findings
    for warp in range(3):
        value = [7 * (32 * warp + lane) for lane in range(32)]
        want = [got + 1000 * valid for got, valid in shuffled(mode, value, step, clamp)]
        assert result.arrays["a0"][32 * warp : 32 * warp + 32].tolist() == want


def test_the_lane_may_differ_per_thread(launch: Launch, kernel: Text, rng: np.random.Generator) -> None:
    body = "add.s64 %d1, %p1, %off4; ld.global.u32 %r1, [%d1]; shfl.sync.idx.b32 %r2, %tid1, %r1, 31, 0xffffffff; st.global.u32 [%at4], %r2; ret;"
    index = rng.integers(0, 32, 64, dtype=np.uint32)
    result = launch(kernel(body, 2), np.zeros(64, np.uint32), index, grid=(2,))
    assert result.arrays["a0"].tolist() == [32 * (lane // 32) + int(index[lane]) for lane in range(64)]


def test_reading_from_an_inactive_lane_is_a_finding(launch: Launch, kernel: Text) -> None:
    body = """
    setp.gt.u32 %q1, %tid1, 15; @%q1 bra OUT;
    shfl.sync.down.b32 %r1, %tid1, 8, 31, 0x0000ffff; st.global.u32 [%at4], %r1;
    OUT: ret;
    """
    result = launch(kernel(body), np.zeros(32, np.uint32))
    (finding,) = result.findings
    assert (finding.code, finding.threads) == ("shuffle-mask", (8, 9, 10, 11))
    inside = body.replace("%tid1, 8, 31", "%tid1, 8, 4127")  # segments of 16
    assert not launch(kernel(inside), np.zeros(32, np.uint32)).findings


def test_a_mask_that_names_lanes_which_never_come_is_a_finding_and_no_hang(launch: Launch, kernel: Text) -> None:
    body = """
    setp.gt.u32 %q1, %tid1, 15; @%q1 bra OTHER;
    vote.sync.ballot.b32 %r1, 1, 0xffffffff; st.global.u32 [%at4], %r1; bra OUT;
    OTHER: bar.sync 0; OUT: bar.sync 0; ret;
    """
    body = body.replace("vote.sync.ballot.b32 %r1, 1", "setp.eq.u32 %q2, %tid1, %tid1; vote.sync.ballot.b32 %r1, %q2")
    result = launch(kernel(body), np.zeros(32, np.uint32))
    assert "shuffle-mask" in [finding.code for finding in result.findings]


def test_a_thread_outside_its_own_mask_is_a_finding(launch: Launch, kernel: Text) -> None:
    body = """
    setp.lt.u32 %q1, %tid1, 8; @!%q1 bra OUT;
    shfl.sync.bfly.b32 %r1, %tid1, 1, 31, 0x0f; st.global.u32 [%at4], %r1;
    OUT: ret;
    """
    result = launch(kernel(body), np.zeros(32, np.uint32))
    assert [(finding.code, finding.threads) for finding in result.findings] == [("shuffle-mask", (4, 5, 6, 7))]


@pytest.mark.instruction("vote")
@pytest.mark.parametrize("threshold", [0, 1, 13, 31, 32, 64])
def test_votes(threshold: int, launch: Launch, kernel: Text) -> None:
    body = f"""
    setp.lt.u32 %q1, %tid1, {threshold}; vote.sync.ballot.b32 %r1, %q1, 0xffffffff;
    vote.sync.all.pred %q2, %q1, 0xffffffff; vote.sync.any.pred %q3, %q1, 0xffffffff; vote.sync.uni.pred %q4, !%q1, 0xffffffff;
    selp.u32 %r2, 1, 0, %q2; selp.u32 %r3, 2, 0, %q3; selp.u32 %r4, 4, 0, %q4; or.b32 %r5, %r2, %r3; or.b32 %r6, %r5, %r4;
    mul.wide.u32 %d1, %tid1, 8; add.s64 %d2, %p0, %d1; st.global.v2.u32 [%d2], {{%r1, %r6}}; ret;
    """
    result = launch(kernel(body), np.zeros(128, np.uint32), grid=(2,))
    for thread, (ballot, flags) in enumerate(result.arrays["a0"].reshape(64, 2).tolist()):
        start = thread // 32 * 32
        holds = [start + lane < threshold for lane in range(32)]
        assert ballot == sum(1 << lane for lane in range(32) if holds[lane])
        assert flags == all(holds) + 2 * any(holds) + 4 * (all(holds) or not any(holds))


@pytest.mark.instruction("activemask", "vote")
def test_votes_of_part_of_a_warp(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 1; setp.eq.u32 %q1, %r1, 0; @!%q1 bra ODD;
    activemask.b32 %r2; vote.sync.ballot.b32 %r3, %q1, 0x55555555; bra OUT;
    ODD: activemask.b32 %r2; vote.sync.ballot.b32 %r3, %q1, 0xaaaaaaaa;
    OUT: mul.wide.u32 %d1, %tid1, 8; add.s64 %d2, %p0, %d1; st.global.v2.u32 [%d2], {%r2, %r3}; ret;
    """
    result = launch(kernel(body), np.zeros(64, np.uint32))
    assert result.arrays["a0"].reshape(32, 2)[:2].tolist() == [[0x55555555, 0x55555555], [0xAAAAAAAA, 0]]


@pytest.mark.instruction("match")
def test_matches(launch: Launch, kernel: Text, rng: np.random.Generator) -> None:
    body = """
    add.s64 %d1, %p1, %off4; ld.global.u32 %r1, [%d1]; match.any.sync.b32 %r2, %r1, 0xffffffff;
    match.all.sync.b32 %r3|%q1, %r1, 0xffffffff; selp.u32 %r4, 1, 0, %q1;
    mul.wide.u32 %d3, %tid1, 16; add.s64 %d4, %p0, %d3; st.global.v4.u32 [%d4], {%r2, %r3, %r4, %r1}; ret;
    """
    values = np.concatenate((rng.integers(0, 4, 32), np.full(32, 9))).astype(np.uint32)
    found = launch(kernel(body, 2), np.zeros(256, np.uint32), values, grid=(2,)).arrays["a0"].reshape(64, 4)
    for thread, (any_mask, all_mask, agreed, value) in enumerate(found.tolist()):
        warp = values[thread // 32 * 32 :][:32]
        assert any_mask == sum(1 << lane for lane in range(32) if warp[lane] == value)
        same = bool((warp == value).all())
        assert (all_mask, agreed) == ((FULL, 1) if same else (0, 0))


@pytest.mark.instruction("redux")
@pytest.mark.parametrize(
    ("action", "kind", "expected"),
    [
        ("add", "u32", lambda part: int(part.sum(dtype=np.uint64)) & FULL),
        ("add", "s32", lambda part: int(part.view(np.int32).sum(dtype=np.int64)) & FULL),
        ("min", "u32", lambda part: int(part.min())),
        ("min", "s32", lambda part: int(part.view(np.int32).min()) & FULL),
        ("max", "u32", lambda part: int(part.max())),
        ("max", "s32", lambda part: int(part.view(np.int32).max()) & FULL),
        ("and", "b32", lambda part: int(np.bitwise_and.reduce(part))),
        ("or", "b32", lambda part: int(np.bitwise_or.reduce(part))),
        ("xor", "b32", lambda part: int(np.bitwise_xor.reduce(part))),
    ],
)
def test_reductions(
    action: str,
    kind: str,
    expected: Callable[[np.ndarray], int],
    launch: Launch,
    kernel: Text,
    rng: np.random.Generator,
) -> None:
    body = f"add.s64 %d1, %p1, %off4; ld.global.u32 %r1, [%d1]; redux.sync.{action}.{kind} %r2, %r1, 0xffffffff; st.global.u32 [%at4], %r2; ret;"
    values = rng.integers(0, 2**32, 64, dtype=np.uint32)
    found = launch(kernel(body, 2), np.zeros(64, np.uint32), values, grid=(2,)).arrays["a0"]
    assert found.tolist() == [expected(values[:32])] * 32 + [expected(values[32:])] * 32
    odd = body.replace("redux", "and.b32 %r3, %tid1, 1; setp.eq.u32 %q1, %r3, 0; @%q1 ret; redux")
    part = launch(kernel(odd.replace("0xffffffff", "0xaaaaaaaa"), 2), np.zeros(64, np.uint32), values, grid=(2,))
    assert not part.findings
    assert part.arrays["a0"].tolist() == [0, expected(values[1:32:2])] * 16 + [0, expected(values[33::2])] * 16


def test_lanes_of_one_warp_may_wait_at_different_barriers_of_the_warp(launch: Launch, kernel: Text) -> None:
    body = """
    .shared .align 4 .b8 cell[128];
    cvt.u32.u64 %r1, %off4; mov.u32 %r2, cell; add.u32 %r3, %r2, %r1; setp.lt.u32 %q1, %tid1, 16; @!%q1 bra HIGH;
    st.shared.u32 [%r3], %tid1; bar.warp.sync 0xffffffff; ld.shared.u32 %r4, [%r3+64]; bra OUT;
    HIGH: st.shared.u32 [%r3], %tid1; bar.warp.sync 0xffffffff; ld.shared.u32 %r4, [%r3+-64];
    OUT: st.global.u32 [%at4], %r4; ret;
    """
    result = launch(kernel(body), np.zeros(32, np.uint32))
    assert not result.findings
    assert result.arrays["a0"].tolist() == [lane ^ 16 for lane in range(32)]


@pytest.mark.parametrize("name", ["eq", "lt", "le", "gt", "ge"])
def test_masks_of_lanes(name: str, launch: Launch, kernel: Text) -> None:
    body = f"mov.u32 %r1, %lanemask_{name}; st.global.u32 [%at4], %r1; ret;"
    relation = {"eq": "__eq__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}[name]
    want = [sum(1 << other for other in range(32) if getattr(other, relation)(lane)) for lane in range(32)]
    assert launch(kernel(body), np.zeros(32, np.uint32)).arrays["a0"].tolist() == want


def test_tiles_of_one_warp_work_at_the_same_time_with_masks_of_their_own(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 16; mov.u32 %r2, 0xffff; shl.b32 %r3, %r2, %r1; and.b32 %r10, %tid1, 3; setp.eq.u32 %q1, %r10, 1;
    redux.sync.add.u32 %r4, %tid1, %r3; vote.sync.ballot.b32 %r5, %q1, %r3; match.any.sync.b32 %r6, %r10, %r3;
    vote.sync.any.pred %q2, %q1, %r3; selp.u32 %r7, 1, 0, %q2;
    mul.wide.u32 %d1, %tid1, 16; add.s64 %d2, %p0, %d1; st.global.v4.u32 [%d2], {%r4, %r5, %r6, %r7}; ret;
    """
    result = launch(kernel(body), np.zeros(128, np.uint32))
    assert not result.findings
    for lane, (total, ballot, same, any_holds) in enumerate(result.arrays["a0"].reshape(32, 4).tolist()):
        tile = range(lane & 16, (lane & 16) + 16)
        assert total == sum(tile)
        assert ballot == sum(1 << other for other in tile if other % 4 == 1)
        assert same == sum(1 << other for other in tile if other % 4 == lane % 4)
        assert any_holds == 1


def test_reading_from_a_lane_that_the_mask_does_not_name_is_a_finding(launch: Launch, kernel: Text) -> None:
    body = """
    and.b32 %r1, %tid1, 16; mov.u32 %r2, 0xffff; shl.b32 %r3, %r2, %r1;
    shfl.sync.bfly.b32 %r4, %tid1, 16, 31, %r3; st.global.u32 [%at4], %r4; ret;
    """
    (finding,) = launch(kernel(body), np.zeros(32, np.uint32)).findings
    assert finding.code == "shuffle-mask"
    assert "mask does not name" in finding.message


@pytest.mark.instruction("match")
@pytest.mark.parametrize("mask", [FULL, 0x0000FFFF, 0x5A5A5A5A, 0x80000001])
@pytest.mark.parametrize("bits", [32, 64])
def test_matches_of_both_widths_among_the_lanes_of_a_mask(
    bits: int, mask: int, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    load = "ld.global.u32 %r1, [%d1];" if bits == 32 else "ld.global.u32 %r1, [%d1]; mov.b64 %d9, {%r5, %r1};"
    value = "%r1" if bits == 32 else "%d9"
    body = f"""
    mov.u32 %r8, %laneid; mov.u32 %r9, {mask}; shr.u32 %r10, %r9, %r8; and.b32 %r10, %r10, 1;
    setp.eq.u32 %q2, %r10, 0; @%q2 ret; mov.u32 %r5, 7; add.s64 %d1, %p1, %off4; {load}
    match.any.sync.b{bits} %r2, {value}, {mask}; match.all.sync.b{bits} %r3|%q1, {value}, {mask};
    selp.u32 %r4, 1, 0, %q1;
    mul.wide.u32 %d3, %tid1, 16; add.s64 %d4, %p0, %d3; st.global.v4.u32 [%d4], {{%r2, %r3, %r4, %r1}}; ret;
    """
    values = np.concatenate((rng.integers(0, 3, 32), np.full(32, 2**31 + 5))).astype(np.uint32)
    result = launch(kernel(body, 2), np.zeros(256, np.uint32), values, grid=(2,))
    assert not result.findings
    for thread, row in enumerate(result.arrays["a0"].reshape(64, 4).tolist()):
        lanes = [lane for lane in range(32) if mask >> lane & 1]
        if thread % 32 not in lanes:
            assert row == [0, 0, 0, 0]
            continue
        warp = values[thread // 32 * 32 :][:32]
        agreed = len({int(warp[lane]) for lane in lanes}) == 1
        equal = sum(1 << lane for lane in lanes if warp[lane] == warp[thread % 32])
        assert row[:3] == [equal, mask if agreed else 0, int(agreed)]


@pytest.mark.instruction("shfl")
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_with_any_clamp_and_segment_mask(
    mode: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    body = f"""
    add.s64 %d1, %p1, %off4; ld.global.u32 %r5, [%d1]; add.s64 %d1, %p2, %off4; ld.global.u32 %r6, [%d1];
    mul.lo.u32 %r1, %tid1, 7; shfl.sync.{mode}.b32 %r2|%q1, %r1, %r5, %r6, 0xffffffff;
    selp.u32 %r3, 100000, 0, %q1; add.u32 %r4, %r2, %r3; st.global.u32 [%at4], %r4; ret;
    """
    warps = 40
    steps = np.repeat(rng.integers(0, 64, warps), 32).astype(np.uint32)
    clamps = np.repeat(rng.integers(0, 32, warps) << 8 | rng.integers(0, 32, warps), 32).astype(np.uint32)
    result = launch(kernel(body, 3), np.zeros(32 * warps, np.uint32), steps, clamps, grid=(warps,))
    found = result.arrays["a0"].reshape(warps, 32)
    for warp in range(warps):
        value = [7 * (32 * warp + lane) for lane in range(32)]
        rows = shuffled(mode, value, int(steps[32 * warp]), int(clamps[32 * warp]))
        for lane, (want, valid) in enumerate(rows):
            assert int(found[warp, lane]) == want + 100000 * valid, (warp, lane)
