"""Thread block clusters: their instructions against exact results, what their barrier orders, and wrong uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.records import LaunchShape

Launch = Callable[..., RunResult]
Text = Callable[..., str]
Kernels = Callable[..., Any]
SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
FOUR = {"grid": (8,), "cluster": (4,)}
"""Two clusters of four blocks; a block has 32 threads where nothing else is said."""
BLOCK, LANE = np.divmod(np.arange(8 * 32), 32)
CLUSTER, RANK = np.divmod(BLOCK, 4)
FILL = f"""
.shared .align 16 .b32 tile[64]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
mad.lo.u32 %r5, %tid1, 3, 1; st.shared.u32 [%r4], %r5; st.shared.u32 [%r4+128], %tid1; mov.u32 %r6, %cluster_ctarank;
add.u32 %r7, %r6, 1; and.b32 %r7, %r7, 3; cvt.u64.u32 %d2, %r4; cvta.shared.u64 %d3, %d2; {SYNC}
"""
"""Each thread writes 3 i + 1 and i, its number in the grid, to its block's tile; %r7 is the rank of the next block."""
NEXT = CLUSTER * 128 + (RANK + 1) % 4 * 32 + LANE
"""The number of the thread of the same lane in the next block of the cluster."""
REMOTE = "mapa.shared::cluster.u32 %r8, %r4, %r7;"


def codes(result: RunResult) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity == "error"}


MAPPED = {
    "a register": ("mapa.shared::cluster.u32 %r8, %r4, %r7;", "ld.shared::cluster.u32 %r9, [%r8];", NEXT * 3 + 1),
    "a variable": ("mapa.shared::cluster.u32 %r8, tile, %r7; add.u32 %r8, %r8, %r2;", "ld.shared::cluster.u32 %r9, [%r8];", NEXT * 3 + 1),
    "a variable and an offset": ("mapa.shared::cluster.u32 %r8, tile+128, %r7; add.u32 %r8, %r8, %r2;", "ld.shared::cluster.u32 %r9, [%r8];", NEXT),
    "64 bits of shared memory": ("mapa.shared::cluster.u64 %d4, %d2, %r7; cvt.u32.u64 %r8, %d4;", "ld.shared::cluster.u32 %r9, [%d4+128];", NEXT),
    "a generic address": ("mapa.u64 %d4, %d3, %r7; cvt.u32.u64 %r8, %d4;", "ld.u32 %r9, [%d4];", NEXT * 3 + 1),
    "an immediate rank": ("mapa.shared::cluster.u32 %r8, %r4, 2;", "ld.shared::cluster.u32 %r9, [%r8];",
                          (CLUSTER * 128 + 64 + LANE) * 3 + 1),
    "the own rank": ("mapa.u64 %d4, %d3, %r6; cvt.u32.u64 %r8, %d4;", "ld.shared.u32 %r9, [%r8];", np.arange(256) * 3 + 1),
    "a mapped address once more": ("mapa.u64 %d4, %d3, 3; mapa.u64 %d4, %d4, %r7; cvta.to.shared.u64 %d5, %d4; cvt.u32.u64 %r8, %d5;",
                                   "ld.shared::cluster.u32 %r9, [%r8+128];", NEXT),
}  # fmt: skip


@pytest.mark.instruction("mapa", "getctarank")
@pytest.mark.parametrize("form", MAPPED)
@pytest.mark.parametrize("seed", [0, 3])
def test_an_address_is_mapped_to_another_block(form: str, seed: int, launch: Launch, kernel: Text) -> None:
    mapping, load, want = MAPPED[form]
    ranks = "getctarank.shared::cluster.u32 %r10, %r8; getctarank.shared::cluster.u32 %r11, %r4;"
    if "mapa.u64" in mapping:
        ranks += "getctarank.u64 %r10, %d4; getctarank.u64 %r11, %d3;"
    body = f"""{FILL} {mapping} {load} {ranks} {SYNC}
    mul.wide.u32 %d7, %tid1, 12; add.s64 %d7, %p0, %d7;
    st.global.u32 [%d7], %r9; st.global.u32 [%d7+4], %r10; st.global.u32 [%d7+8], %r11; ret;"""
    result = launch(kernel(body), np.zeros((256, 3), np.uint32), schedule_seed=seed, **FOUR)
    assert not result.findings
    values, ranks, own = result.arrays["a0"].T
    assert values.tolist() == want.tolist()
    target = {"an immediate rank": np.full(256, 2), "the own rank": RANK}.get(form, (RANK + 1) % 4)
    assert ranks.tolist() == target.tolist()
    assert own.tolist() == RANK.tolist()


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((6, 4, 2), (2, 2, 1)), ((6, 4, 2), (3, 1, 2)), ((4, 1, 1), None), ((8,), (8,)), ((2, 2), (1, 1))],
)
@pytest.mark.parametrize("seed", [0, 5])
def test_special_registers_tell_where_a_block_is(
    grid: Any, cluster: Any, seed: int, launch: Launch, kernel: Text
) -> None:
    names = [
        f"{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"
    ]
    names += ["cluster_ctarank", "cluster_nctarank"]
    reads = "".join(
        f"mov.u32 %r1, %{name}; st.global.u32 [%d1+{4 * number}], %r1;" for number, name in enumerate(names)
    )
    body = f"""
    .reg .b32 %x, %y, %z, %n; mov.u32 %x, %nctaid.x; mov.u32 %y, %nctaid.y; mov.u32 %r1, %ctaid.z; mov.u32 %z, %ctaid.y;
    mad.lo.u32 %n, %r1, %y, %z; mad.lo.u32 %n, %n, %x, %ct; mul.wide.u32 %d1, %n, 64; add.s64 %d1, %p0, %d1;
    {reads} mov.pred %q1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %q1; st.global.u32 [%d1+56], %r1; ret;"""
    gx, gy, gz = (*grid, 1, 1)[:3]
    result = launch(
        kernel(body),
        np.zeros((gx * gy * gz, 16), np.uint32),
        grid=grid,
        block=(1,),
        cluster=cluster,
        schedule_seed=seed,
    )
    assert not result.findings
    sides = (*(cluster or ()), 1, 1, 1)[:3]
    for block, row in enumerate(result.arrays["a0"].tolist()):
        place = (block % gx, block // gx % gy, block // (gx * gy))
        inside = [at % side for at, side in zip(place, sides, strict=True)]
        assert row[0:3] == [at // side for at, side in zip(place, sides, strict=True)]
        assert row[3:6] == [of // side for of, side in zip((gx, gy, gz), sides, strict=True)]
        assert row[6:9] == inside
        assert row[9:12] == list(sides)
        assert row[12:15] == [
            inside[0] + sides[0] * (inside[1] + sides[1] * inside[2]), int(np.prod(sides)), int(cluster is not None),
        ]  # fmt: skip


@pytest.mark.instruction("isspacep", "cvta")
def test_only_the_own_part_of_the_window_is_the_space_of_the_block(launch: Launch, kernel: Text) -> None:
    tests = "".join(
        f"isspacep.{space} %q1, {address}; selp.u32 %r9, 1, 0, %q1; st.global.u32 [%d7+{4 * number}], %r9;"
        for number, (space, address) in enumerate(
            (space, address)
            for address in ("%d3", "%d4", "%d5", "%p0")
            for space in ("shared", "shared::cta", "shared::cluster", "global")
        )
    )
    body = f"""{FILL} mapa.u64 %d4, %d3, %r7; mapa.shared::cluster.u32 %r8, %r4, %r7; cvt.u64.u32 %d5, %r8;
    cvta.shared::cluster.u64 %d5, %d5; mul.wide.u32 %d7, %tid1, 64; add.s64 %d7, %p0, %d7; {tests} {SYNC} ret;"""
    result = launch(kernel(body), np.zeros((256, 16), np.uint32), **FOUR)
    assert not result.findings
    assert (result.arrays["a0"] == [1, 1, 1, 0, *[0, 0, 1, 0] * 2, 0, 0, 0, 1]).all()


@pytest.mark.instruction("ld", "st")
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize(
    ("kind", "parts"), [("b8", 1), ("s16", 1), ("u32", 1), ("u64", 1), ("u32", 2), ("u32", 4), ("u64", 2), ("u16", 4)]
)
def test_values_are_stored_to_and_loaded_from_another_block(
    kind: str, parts: int, generic: bool, launch: Launch, kernel: Text
) -> None:
    size = int(kind[1:]) // 8
    bits = max(2 * size * 4, 16)
    names = [f"%v{part}" for part in range(parts)]
    items = "{" + ", ".join(names) + "}" if parts > 1 else names[0]
    vector = f".v{parts}" if parts > 1 else ""
    space, place = ("", "%d5") if generic else (".shared::cluster", "%d4")
    sets = "".join(f"add.u32 %r9, %tid1, {50 * part}; cvt.u{bits}.u32 {name}, %r9;" for part, name in enumerate(names))
    saves = "".join(
        f"st.global.{kind.replace('s', 'b')} [%d7+{part * size}], {name};" for part, name in enumerate(names)
    )
    body = f"""
    .reg .b{bits} %v<{parts}>; .shared .align 16 .b8 tile[{32 * size * parts}]; mov.u32 %r1, %tid.x; mov.u32 %r6, %cluster_ctarank;
    add.u32 %r7, %r6, 1; and.b32 %r7, %r7, 3; mul.lo.u32 %r2, %r1, {size * parts}; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
    cvt.u64.u32 %d2, %r3; mapa.shared::cluster.u64 %d4, %d2, %r7; cvta.shared::cluster.u64 %d5, %d4; {SYNC}
    {sets} st{space}{vector}.{kind} [{place}], {items}; {SYNC}
    mapa.shared::cluster.u64 %d4, %d2, 2; cvta.shared::cluster.u64 %d5, %d4; ld{space}{vector}.{kind} {items}, [{place}];
    mul.wide.u32 %d7, %tid1, {size * parts}; add.s64 %d7, %p0, %d7; {saves} {SYNC} ret;"""
    result = launch(kernel(body), np.zeros((256, parts), f"u{size}"), **FOUR)
    assert not result.findings
    # The block of rank 1 stores to the one of rank 2, which all load from.
    writer = CLUSTER * 128 + 32 + LANE
    want = (writer[:, None] + 50 * np.arange(parts)).astype(f"u{size}")
    assert result.arrays["a0"].tolist() == want.tolist()


@pytest.mark.instruction("atom", "red")
@pytest.mark.parametrize("generic", [False, True])
def test_atomics_of_all_blocks_meet_in_one(generic: bool, launch: Launch, kernel: Text) -> None:
    space, place = ("", "%d4") if generic else (".shared::cluster", "%r8")
    body = f"""
    .shared .align 8 .b32 sums[4]; mov.u32 %r1, %tid.x; mov.u32 %r3, sums; setp.ne.u32 %q1, %r1, 0; mov.u32 %r9, 0;
    @%q1 bra SET; st.shared.v4.u32 [%r3], {{%r9, %r9, %r9, %r9}}; SET: {SYNC}
    mapa.shared::cluster.u32 %r8, %r3, 1; cvt.u64.u32 %d4, %r8; cvta.shared::cluster.u64 %d4, %d4;
    red{space}.add.u32 [{place}], 2; atom{space}.max.u32 %r9, [{place}+4], %tid1; atom{space}.or.b32 _, [{place}+8], %r1;
    atom.acq_rel.cluster{space}.add.u32 %r10, [{place}+12], 1; st.global.u32 [%at4], %r10; {SYNC}
    @%q1 ret; shl.b32 %r2, %ct, 4; cvt.u64.u32 %d6, %r2; add.s64 %d6, %p1, %d6; ld.shared.v4.u32 {{%r11, %r12, %r13, %r14}}, [%r3];
    st.global.v4.u32 [%d6], {{%r11, %r12, %r13, %r14}}; ret;"""
    result = launch(kernel(body, 2), np.zeros(256, np.uint32), np.zeros((8, 4), np.uint32), schedule_seed=2, **FOUR)
    assert not result.findings
    for cluster in range(2):
        assert sorted(result.arrays["a0"][cluster * 128 : cluster * 128 + 128].tolist()) == list(range(128))
        want = np.zeros((4, 4), int)
        want[1] = [256, cluster * 128 + 127, 31, 128]
        assert result.arrays["a1"][cluster * 4 : cluster * 4 + 4].tolist() == want.tolist()


@pytest.mark.instruction("mbarrier")
@pytest.mark.parametrize("drop", [False, True])
def test_threads_of_other_blocks_arrive_at_an_mbarrier(drop: bool, launch: Launch, kernel: Text) -> None:
    """Each block fills the next one's tile and arrives there; each waits for its own, without a barrier of the cluster."""
    arrive = "arrive_drop" if drop else "arrive"
    body = f"""
    .shared .align 8 .b64 full; .shared .align 4 .b32 tile[32]; mov.u32 %r1, %tid.x; mov.u32 %r2, full; mov.u32 %r3, tile;
    setp.ne.u32 %q1, %r1, 0; mov.u32 %r6, %cluster_ctarank; add.u32 %r7, %r6, 1; and.b32 %r7, %r7, 3;
    @%q1 bra READY; mbarrier.init.shared.b64 [%r2], 32; fence.mbarrier_init.release.cluster; READY: barrier.cluster.arrive.relaxed;
    barrier.cluster.wait; shl.b32 %r4, %r1, 2; add.u32 %r4, %r3, %r4; mapa.shared::cluster.u32 %r8, %r4, %r7;
    st.shared::cluster.u32 [%r8], %tid1; mapa.shared::cluster.u32 %r9, %r2, %r7;
    mbarrier.{arrive}.release.cluster.shared::cluster.b64 _, [%r9];
    WAIT: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %q2, [%r2], 0; @!%q2 bra WAIT;
    mov.u32 %r10, 31; sub.u32 %r10, %r10, %r1; shl.b32 %r10, %r10, 2; add.u32 %r10, %r3, %r10; ld.shared.u32 %r11, [%r10];
    st.global.u32 [%at4], %r11; {SYNC} ret;"""
    result = launch(kernel(body), np.zeros(256, np.uint32), schedule_seed=1, **FOUR)
    assert not result.findings
    assert result.arrays["a0"].tolist() == (CLUSTER * 128 + (RANK - 1) % 4 * 32 + 31 - LANE).tolist()
    unordered = launch(kernel(body.replace(f"{arrive}.release", f"{arrive}.relaxed")), np.zeros(256, np.uint32), **FOUR)
    assert codes(unordered) == {"shared-race"}
    # Each block ends when it has seen the last access to its shared memory.
    assert not launch(kernel(body.replace(f"{SYNC} ret;", "ret;")), np.zeros(256, np.uint32), **FOUR).findings


BULK = f"""
.shared .align 16 .b32 other[32]; .shared .align 8 .b64 full; mov.u32 %r11, other; mov.u32 %r12, full;
mov.u32 %r1, %tid.x; setp.ne.u32 %q1, %r1, 0; @%q1 bra READY; mbarrier.init.shared.b64 [%r12], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%r12], 128; READY: {FILL} fence.proxy.async.shared::cta;
mapa.shared::cluster.u32 %r8, %r11, %r7; mapa.shared::cluster.u32 %r9, %r12, %r7; setp.ne.u32 %q2, %r1, 0;
@!%q2 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r3], 128, [%r9];
WAIT: mbarrier.try_wait.parity.shared.b64 %q3, [%r12], 0; @!%q3 bra WAIT;
add.u32 %r10, %r11, %r2; ld.shared.u32 %r10, [%r10]; st.global.u32 [%at4], %r10; {SYNC} ret;
"""
"""Each block copies 128 bytes of its tile to the next block, whose mbarrier counts them."""


@pytest.mark.instruction("cp")
@pytest.mark.parametrize("seed", [0, 3])
def test_a_bulk_copy_goes_to_another_block(seed: int, launch: Launch, kernel: Text) -> None:
    result = launch(kernel(BULK), np.zeros(256, np.uint32), schedule_seed=seed, **FOUR)
    assert not result.findings
    assert result.arrays["a0"].tolist() == (3 * (CLUSTER * 128 + (RANK - 1) % 4 * 32 + LANE) + 1).tolist()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("WAIT: mbarrier.try_wait.parity.shared.b64 %q3, [%r12], 0; @!%q3 bra WAIT;", "", "shared-race"),
        ("fence.proxy.async.shared::cta;", "", "shared-race"),
        ("[%r3], 128, [%r9]", "[%r3], 112, [%r9]", "hang"),
    ],
    ids=["not waited for", "no proxy fence", "too few bytes"],
)
def test_mistakes_with_a_bulk_copy_to_another_block_are_found(
    old: str, new: str, code: str, launch: Launch, kernel: Text
) -> None:
    assert old in BULK
    text = kernel(BULK.replace(old, new))
    assert codes(launch(text, np.zeros(256, np.uint32), step_limit=100_000, **FOUR)) == {code}


def test_a_bulk_copy_for_the_own_block_does_not_reach_another(launch: Launch, kernel: Text) -> None:
    body = BULK.replace("shared::cluster.shared::cta.mbarrier", "shared::cta.global.mbarrier")
    result = launch(
        kernel(body.replace("[%r3], 128", "[%p0], 128")), np.zeros(256, np.uint32), step_limit=100_000, **FOUR
    )
    assert "use .shared::cluster" in result.findings[0].message


@pytest.mark.instruction("barrier")
@pytest.mark.parametrize(
    "arrive",
    [
        "arrive",
        "arrive.release",
        "arrive.aligned",
        "arrive.release.aligned",
        "arrive.relaxed",
        "arrive.relaxed.aligned",
    ],
)
@pytest.mark.parametrize("wait", ["wait", "wait.acquire", "wait.aligned", "wait.acquire.aligned"])
def test_a_barrier_of_a_cluster_orders_unless_it_is_relaxed(
    arrive: str, wait: str, launch: Launch, kernel: Text
) -> None:
    text = FILL.replace(SYNC, f"barrier.cluster.{arrive}; barrier.cluster.{wait};")
    body = f"{text} mapa.u64 %d4, %d3, %r7; ld.u32 %r9, [%d4]; {SYNC} st.global.u32 [%at4], %r9; ret;"
    result = launch(kernel(body), np.zeros(256, np.uint32), count=True, **FOUR)
    assert result.arrays["a0"].tolist() == (NEXT * 3 + 1).tolist()
    assert codes(result) == ({"shared-race"} if "relaxed" in arrive else set())
    assert result.counters is not None
    assert result.counters.barriers == 16
    fenced = body.replace("barrier.cluster.arrive.relaxed", "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed")
    assert not launch(kernel(fenced), np.zeros(256, np.uint32), **FOUR).findings


def test_a_thread_that_has_ended_is_not_waited_for(launch: Launch, kernel: Text) -> None:
    body = f"mov.u32 %r1, %tid.x; setp.gt.u32 %q1, %r1, 4; @%q1 ret; {SYNC} {SYNC} st.global.u32 [%at4], 7; ret;"
    result = launch(kernel(body), np.zeros(256, np.uint32), **FOUR)
    assert not result.findings
    assert result.arrays["a0"].tolist() == np.where(LANE > 4, 0, 7).tolist()


def test_a_relaxed_barrier_keeps_the_blocks_alive(launch: Launch, kernel: Text) -> None:
    last = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    body = f"{FILL} {REMOTE} ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%at4], %r9; {last} ret;"
    for seed in range(3):
        assert not launch(kernel(body), np.zeros(256, np.uint32), schedule_seed=seed, **FOUR).findings


def test_both_branches_may_arrive(launch: Launch, kernel: Text) -> None:
    body = """and.b32 %r1, %tid1, 1; setp.eq.u32 %q1, %r1, 0; @%q1 bra EVEN; barrier.cluster.arrive; bra BOTH;
    EVEN: barrier.cluster.arrive; BOTH: barrier.cluster.wait; st.global.u32 [%at4], 1; ret;"""
    result = launch(kernel(body), np.zeros(256, np.uint32), **FOUR)
    assert not result.findings
    assert result.arrays["a0"].all()


def test_work_between_arriving_and_waiting_is_not_published(launch: Launch, kernel: Text) -> None:
    late = "barrier.cluster.arrive; st.shared.u32 [%r4+128], %r5; barrier.cluster.wait;"
    reads = f"mapa.u64 %d4, %d3, %r7; ld.u32 %r9, [%d4+OFFSET]; {SYNC} st.global.u32 [%at4], %r9; ret;"
    for offset, want in ((0, set[str]()), (128, {"shared-race"})):
        body = FILL.replace(SYNC, late) + reads.replace("OFFSET", str(offset))
        found = [codes(launch(kernel(body), np.zeros(256, np.uint32), schedule_seed=seed, **FOUR)) for seed in range(3)]
        assert set().union(*found) == want


MISUSE: dict[str, tuple[str, str, str]] = {
    "a rank that is not there": (f"{FILL} mapa.shared::cluster.u32 %r8, %r4, 4; ld.shared::cluster.u32 %r9, [%r8]; {SYNC} ret;",
                                 "illegal-address", "rank 4, and the cluster has 4 blocks"),
    "past the end": (f"{FILL} {REMOTE} st.shared::cluster.u32 [%r8+256], %r9; {SYNC} ret;", "out-of-bounds-write", "byte 256"),
    "before the start": (f"{FILL} {REMOTE} ld.shared.u32 %r9, [%r4+-4]; {SYNC} ret;", "out-of-bounds-read", "byte -4"),
    "a misaligned address": (f"{FILL} {REMOTE} ld.shared::cluster.u32 %r9, [%r8+2]; {SYNC} ret;", "misaligned-access", "not a multiple of 4"),
    "the block's own instruction": (f"{FILL} {REMOTE} ld.shared.u32 %r9, [%r8]; {SYNC} ret;", "illegal-address", "use .shared::cluster"),
    "memory that nobody wrote": (f".shared .b32 other[8]; {FILL} mapa.shared::cluster.u32 %r8, other, %r7; "
                                 f"ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%at4], %r9; {SYNC} ret;",
                                 "uninitialised-shared", "of block ("),
    "no barrier before": (f"{FILL.replace(SYNC, '')} {REMOTE} st.shared::cluster.u32 [%r8], 1; {SYNC} ret;", "illegal-address", "may not have started"),
    "no barrier after": (f"{FILL} {REMOTE} ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%at4], %r9; ret;", "illegal-address", "end"),
    "a block that ends first": (f"{FILL} setp.eq.u32 %q1, %r6, 1; @%q1 ret; mapa.shared::cluster.u32 %r8, %r4, 1; "
                                "mov.u32 %r10, 0; LOOP: add.u32 %r10, %r10, 1; setp.lt.u32 %q2, %r10, 9; @%q2 bra LOOP; "
                                f"ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%at4], %r9; {SYNC} ret;", "illegal-address", "of its cluster, "),
    "arriving twice": (f"barrier.cluster.arrive; {SYNC} ret;", "divergent-barrier", "again without having waited"),
    "waiting without arriving": (f"barrier.cluster.wait; {SYNC} ret;", "divergent-barrier", "without having arrived"),
    "a thread that does not arrive": (f"setp.eq.u32 %q1, %tid1, 5; @%q1 bra SKIP; {SYNC} bra END; SKIP: LOOP: bra LOOP; END: ret;", "hang", "for ever"),
    "waiting elsewhere": (f"setp.eq.u32 %q1, %tid1, 5; @%q1 bra SKIP; {SYNC} bra END; SKIP: bar.sync 0; END: ret;", "divergent-barrier", "waits for ever at a barrier"),
    "going around": (f"and.b32 %r1, %tid1, 1; setp.eq.u32 %q1, %r1, 0; @%q1 bra OVER; {SYNC} OVER: st.global.u32 [%at4], 1; ret;",
                     "divergent-barrier", "bypass"),
    "leaving a loop": (f"mov.u32 %r1, %tid.x; LOOP: {SYNC} sub.u32 %r1, %r1, 1; setp.gt.s32 %q1, %r1, 0; @%q1 bra LOOP; "
                       "st.global.u32 [%at4], 1; ret;", "divergent-barrier", "bypass"),
    "part of a warp": ("and.b32 %r1, %tid1, 1; setp.eq.u32 %q1, %r1, 0; @%q1 bra EVEN; barrier.cluster.arrive.aligned; bra BOTH; "
                       "EVEN: barrier.cluster.arrive.aligned; BOTH: barrier.cluster.wait; ret;", "divergent-barrier", "other threads of its warp"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
@pytest.mark.parametrize("seed", [0, 4])
def test_wrong_uses_are_found(name: str, seed: int, launch: Launch, kernel: Text) -> None:
    body, code, phrase = MISUSE[name]
    text = kernel(".loc 1 9 3\n" + body)
    result = launch(text, np.zeros(256, np.uint32), schedule_seed=seed, step_limit=100_000, **FOUR)
    found = [finding for finding in result.findings if finding.severity == "error"]
    assert code in {finding.code for finding in found}, found
    assert any(phrase in finding.message for finding in found if finding.code == code), found
    assert all(finding.line == 9 for finding in found)


@pytest.mark.parametrize(
    "instruction",
    ["mapa.u32 %r1, %r2, 0;", "mapa.shared.u32 %r1, %r2, 0;", "getctarank.u32 %r1, %r2;", "bar.cluster.arrive;", "barrier.cluster.wait.relaxed;",
     "mbarrier.try_wait.shared::cluster.b64 %q1, [%r1], %d1;", "mbarrier.arrive.shared::cluster.b64 %d1, [%r1];",
     "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];"],
)  # fmt: skip
def test_forms_that_ptx_does_not_have_are_refused(instruction: str, launch: Launch, kernel: Text) -> None:
    with pytest.raises(UnsupportedInstruction):
        launch(kernel(f"{instruction} ret;"), np.zeros(1, np.uint32))


GROUPS = """#include <cooperative_groups.h>
typedef cooperative_groups::cluster_group Cluster;
__device__ Cluster own() { return cooperative_groups::this_cluster(); }
"""
BUILTINS = """struct Cluster {
    __device__ void barrier_arrive() { __cluster_barrier_arrive(); }
    __device__ void barrier_wait() { __cluster_barrier_wait(); }
    __device__ void sync() { barrier_arrive(); barrier_wait(); }
    __device__ unsigned block_rank() { return __clusterRelativeBlockRank(); }
    __device__ unsigned num_blocks() { return __clusterSizeInBlocks(); }
    template <class T> __device__ T* map_shared_rank(T* a, int rank) { return static_cast<T*>(__cluster_map_shared_rank(a, rank)); }
};
__device__ Cluster own() { return {}; }
"""
"""A stand-in for the header of cooperative groups, which takes seconds to compile."""
HEAD = """
__global__ void k(int* data, int* flag, int* out) {
    __shared__ int a[64]; Cluster c = own();
    const int t = threadIdx.x, b = blockIdx.x, r = c.block_rank(), next = (r + 1) % c.num_blocks(), i = b * 64 + t; a[t] = i; """
ORDERS = {
    "a barrier": ("c.sync(); out[i] = c.map_shared_rank(a, next)[63 - t]; c.sync();", set()),
    "a split barrier": ("c.barrier_arrive(); data[i] = t; c.barrier_wait(); "
                        "out[i] = c.map_shared_rank(a, next)[63 - t]; c.sync();", set()),
    "no barrier between a read and a write": ("c.sync(); out[i] = c.map_shared_rank(a, next)[t]; a[t] = 1; c.sync();", {"shared-race"}),
    "a barrier of the block only": ("c.sync(); a[t] = i + 1; __syncthreads(); out[i] = c.map_shared_rank(a, next)[t]; c.sync();", {"shared-race"}),
    "a barrier between a read and a write": ("c.sync(); out[i] = c.map_shared_rank(a, next)[t]; c.sync(); a[t] = 1;", set()),
    "one thread waits for its block": ("c.sync(); c.map_shared_rank(a, next)[t] = 5; c.sync(); out[i] = a[63 - t];", set()),
    "two blocks write one place": ("c.sync(); c.map_shared_rank(a, 0)[t] = b; c.sync(); out[i] = a[t];", {"shared-race"}),
    "global memory in a cluster": ("data[i] = t; c.sync(); out[i] = data[(b - r + next) * 64 + 63 - t];", set()),
    "global memory of another cluster": ("data[i] = t; c.sync(); out[i] = data[255 - i];", {"global-race"}),
    "atomics": ("c.sync(); atomicAdd(c.map_shared_rank(a, 0) + t, 1); c.sync(); out[i] = a[t];", set()),
    "a cluster hands on what it has been told": (
        "data[i] = t; c.sync(); if (r == 0 && t == 0) { __threadfence(); atomicAdd(flag, 1); } "
        "if (r == 0 && t == 0) { while (atomicAdd(flag, 0) < 2) {} __threadfence(); } c.sync(); out[i] = data[255 - i];", set()),
    "without the fence": (
        "data[i] = t; c.sync(); if (r == 0 && t == 0) { atomicAdd(flag, 1); while (atomicAdd(flag, 0) < 2) {} } c.sync(); "
        "out[i] = data[255 - i];", {"global-race"}),
}  # fmt: skip

COMPILED: dict[str, Any] = {}
"""The same text is compiled once for both ways of running it."""


@pytest.mark.parametrize("name", ORDERS)
def test_what_orders_the_blocks_of_a_cluster(name: str, cuda: Kernels, run_cuda: Kernels) -> None:
    body, want = ORDERS[name]
    if name not in COMPILED:
        COMPILED[name] = cuda(BUILTINS + HEAD + body + "}")
    code = COMPILED[name]
    found = set()
    for seed in range(3):
        arrays = [(name, np.zeros(256, np.int32)) for name in ("data", "flag", "out")]
        found |= codes(run_cuda(code, *arrays, grid=(4,), block=(64,), cluster=(2,), schedule_seed=seed))
    assert found == want


@pytest.mark.parametrize(
    ("scope", "want"), [("cta", {"shared-race"}), ("cluster", set()), ("gpu", set()), ("sys", set())]
)
def test_atomics_of_a_cluster_need_its_scope(scope: str, want: set[str], launch: Launch, kernel: Text) -> None:
    body = f"{FILL} mapa.u64 %d4, %d3, 0; atom.relaxed.{scope}.add.u32 %r9, [%d4], 1; {SYNC} ret;"
    assert codes(launch(kernel(body), np.zeros(256, np.uint32), **FOUR)) == want


@pytest.mark.instruction("mapa")
def test_an_access_counts_once_for_each_block_that_a_warp_addresses(launch: Launch, kernel: Text) -> None:
    """Lane pairs go to blocks 0 to 3 in turn: four groups of lanes without conflicts; then all lanes to one bank of each."""
    place = "and.b32 %r9, %r1, 3; mapa.shared::cluster.u32 %r8, WHERE, %r9; ld.shared::cluster.u32 %r10, [%r8];"
    for where, wavefronts, conflicts in (("%r4", 4, 0), ("%r11", 8 * 4, 7 * 4)):
        body = f"""{FILL.replace("tile[64]", "tile[512]")} shr.u32 %r12, %r1, 2; shl.b32 %r12, %r12, 7; add.u32 %r11, %r3, %r12;
        {place.replace("WHERE", where)} {SYNC} st.global.u32 [%at4], %r10; ret;"""
        result = launch(kernel(body), np.zeros(256, np.uint32), count=True, check=False, **FOUR)
        assert result.counters is not None
        assert result.counters.shared_load_wavefronts == 8 * wavefronts
        assert result.counters.bank_conflicts == 8 * conflicts


@pytest.mark.parametrize(
    ("grid", "cluster", "arch", "phrase"),
    [((6,), (4,), "sm_90", "grid.x is 6, which is not a multiple of the cluster's 4"), ((4, 3), (2, 2), "sm_90", "grid.y is 3"),
     ((32,), (32,), "sm_90", "has 32 blocks, and sm_90 allows 16"), ((16,), (16,), "sm_120", "has 16 blocks, and sm_120 allows 8"),
     ((4,), (2,), "sm_80", "clusters need compute capability 9.0"), ((16,), (16,), "sm_90", ""), ((8,), (8,), "sm_120", "")],
)  # fmt: skip
def test_a_cluster_that_a_gpu_refuses_is_a_finding(
    grid: Any, cluster: Any, arch: str, phrase: str, compiled: Kernels, kernel: Text
) -> None:
    shape = LaunchShape((*grid, 1, 1)[:3], (32, 1, 1), cluster=cluster)
    run = Run(shape, (ArrayArgument("a0", np.zeros(1024, np.uint32)),))
    module = EmulatorBackend().load(compiled(kernel(f"{SYNC} st.global.u32 [%at4], 3; ret;"), "k"), find_target(arch))
    findings = module.run(run).findings
    assert [finding.code for finding in findings] == (["launch-failure"] if phrase else [])
    assert all(phrase in finding.message for finding in findings)


def test_the_cluster_that_a_kernel_is_compiled_for_is_launched(cuda: Kernels, run_cuda: Kernels) -> None:
    head = HEAD.replace("void k", "void __cluster_dims__(2, 1, 1) k")
    code = cuda(GROUPS + head + "out[i] = 10 * c.num_blocks() + c.block_rank(); }")
    arrays = [(name, np.zeros(256, np.int32)) for name in ("data", "flag", "out")]
    result = run_cuda(code, *arrays, grid=(4,), block=(64,))
    assert not result.findings
    assert result.arrays["out"].reshape(4, 64).tolist() == [[20 + block % 2] * 64 for block in range(4)]
    for grid, cluster, phrase in (
        (3, None, "not a multiple of the cluster's 2"),
        (4, (4,), "__cluster_dims__ of the kernel says 2 x 1 x 1"),
    ):
        (finding,) = run_cuda(code, *arrays, grid=(grid,), block=(64,), cluster=cluster).findings
        assert finding.code == "launch-failure"
        assert phrase in finding.message
