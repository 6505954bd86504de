"""Bulk copies: bytes, reductions and transaction counts against models, and what they leave unordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import RunResult, UnsupportedInstruction

Launch = Callable[..., RunResult]
Text = Callable[..., str]
Kernels = Callable[..., Any]


@dataclass
class Model:
    """PTX ISA, Phase of the mbarrier object: complete without pending arrivals and with a transaction count of zero."""

    pending: int
    expected: int
    transactions: int = 0
    phase: int = 0

    def change(self, count: int, transactions: int, *, drop: bool = False) -> int:
        before = self.pending
        self.transactions += transactions
        self.pending -= count
        self.expected -= count if drop else 0
        if self.pending == 0 and self.transactions == 0:
            self.phase += 1
            self.pending = self.expected
        return before


STEPS = {
    "arrive": ("mbarrier.arrive.shared::cta.b64 %d9, [%r9], {count};", 1, 0),
    "expect": ("mbarrier.expect_tx.relaxed.{scope}.shared::{space}.b64 [%r9], {bytes};", 0, 1),
    "complete": ("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r9], {bytes};", 0, -1),
    "arrive_expect": ("mbarrier.arrive.expect_tx.{order}.{scope}.shared::cta.b64 %d9, [%r9], {bytes};", 1, 1),
    "cluster": ("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r9], {bytes};", 1, 1),
}


@pytest.mark.instruction("mbarrier")
@pytest.mark.parametrize("seed", range(12))
def test_transactions_hold_a_phase_back(seed: int, launch: Launch, kernel: Text) -> None:
    random = np.random.default_rng(seed)
    model = Model(6, 6)
    lines, want, last = [], [], 0
    for number in range(24):
        name = str(random.choice(list(STEPS)))
        outstanding = model.transactions > 0
        if model.pending == 0:
            name = "complete" if outstanding else "expect"
        amount = (
            abs(model.transactions) if model.pending == 0 or random.integers(3) == 0 else int(random.integers(1, 999))
        )
        count = int(random.integers(1, model.pending + 1)) if name == "arrive" else 1
        text, arrives, sign = STEPS[name]
        scope, space, order = (
            str(random.choice(kinds)) for kinds in (["cta", "cluster"], ["cta", "cluster"], ["release", "relaxed"])
        )
        lines.append(text.format(count=count, bytes=amount, scope=scope, space=space, order=order))
        phase = model.phase
        before = model.change(count * arrives, sign * amount)
        last = before if "%d9" in text else last
        lines.append(
            f"mbarrier.pending_count.b64 %r1, %d9; mbarrier.test_wait.parity.shared::cta.b64 %q1, [%r9], {phase & 1};"
            f"selp.u32 %r2, 1, 0, %q1; st.global.v2.u32 [%p0+{8 * number}], {{%r1, %r2}};"
        )
        want.append([last, int(model.phase != phase)])
    body = f"""
    .shared .align 8 .b64 bar; mov.u32 %r9, bar; setp.ne.u32 %q2, %tid1, 0; @%q2 ret; mov.u64 %d9, 0;
    mbarrier.init.shared.b64 [%r9], 6; {" ".join(lines)} ret;
    """
    result = launch(kernel(body), np.zeros((24, 2), np.uint32))
    assert not result.findings
    assert result.arrays["a0"].tolist() == want
    assert model.phase


START = """
    .shared .align 8 .b64 bar; .shared .align 16 .b8 tile[4096]; .shared .align 16 .b8 other[4096];
    mov.u32 %r9, bar; mov.u32 %r8, tile; mov.u32 %r7, other; mov.u32 %r1, %tid.x; setp.ne.u32 %q2, %r1, 0;
    @!%q2 mbarrier.init.shared.b64 [%r9], 1; bar.sync 0; mov.u64 %d5, 77;
"""
EXPECT = "@!%q2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], {size};"
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q3, [%r9], 0; @!%q3 bra WAIT;"
LOAD = "@!%q2 cp.async.bulk.shared::{to}.global.mbarrier::complete_tx::bytes{hint} [%r8], [%p0], {size}, [%r9]{policy};"
SHOW = """
    mul.lo.u32 %r2, %r1, 16; add.u32 %r3, %r8, %r2; cvt.u64.u32 %d1, %r2; add.u64 %d1, %p1, %d1;
    ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r3]; st.global.v4.u32 [%d1], {%r10, %r11, %r12, %r13}; ret;
"""


@pytest.mark.instruction("cp")
@pytest.mark.parametrize("to", ["cluster", "cta"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_a_load_brings_the_bytes_and_its_barrier_waits_for_them(
    to: str, first: bool, hint: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    copy = LOAD.format(to=to, hint=hint, policy=", %d5" if hint else "", size=512)
    expect = EXPECT.format(size=512)
    x = rng.integers(0, 256, 640, dtype=np.uint8)
    result = launch(
        kernel(START + (expect + copy if first else copy + expect) + WAIT + SHOW, 2),
        x,
        np.zeros(512, np.uint8),
        count=True,
    )
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], x[:512])
    assert result.counters is not None
    assert (result.counters.global_load_requests, result.counters.global_load_sectors) == (1, 16)
    assert (result.counters.global_store_sectors, result.counters.global_bytes_asked) == (16, 1024)
    assert result.counters.bank_conflicts == result.counters.shared_store_wavefronts == 0


FILL = """
    mul.lo.u32 %r2, %r1, 16; add.u32 %r3, %r8, %r2; cvt.u64.u32 %d1, %r2; add.u64 %d1, %p0, %d1;
    ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d1]; st.shared.v4.u32 [%r3], {%r10, %r11, %r12, %r13};
"""
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
STORE = "@!%q2 cp.async.bulk.global.shared::cta.bulk_group{hint} [%p1], [%r8], {size}{policy};"
COMMIT = "@!%q2 cp.async.bulk.commit_group; @!%q2 cp.async.bulk.wait_group{read} {left};"


@pytest.mark.instruction("cp")
@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
@pytest.mark.parametrize("waits", ["", COMMIT.format(read="", left=0), COMMIT.format(read=".read", left=0)])
def test_a_store_takes_the_bytes_whether_it_is_waited_for_or_not(
    hint: str, waits: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    store = STORE.format(hint=hint, policy=", %d5" if hint else "", size=512)
    x = rng.integers(0, 256, 512, dtype=np.uint8)
    result = launch(kernel(START + FILL + FENCE + store + waits + "ret;", 2), x, np.zeros(640, np.uint8), count=True)
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], np.append(x, np.zeros(128, np.uint8)))
    assert result.counters is not None
    assert (result.counters.global_store_requests, result.counters.global_store_sectors) == (1, 16)
    assert "a1" not in result.reads


@pytest.mark.instruction("cp")
def test_a_copy_within_shared_memory_completes_at_its_barrier(
    launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    copy = "@!%q2 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7], [%r8], %r5, [%r9];"
    body = (
        START
        + FILL
        + FENCE
        + "mov.u32 %r5, 512;"
        + EXPECT.format(size="%r5")
        + copy
        + WAIT
        + SHOW.replace("%r8", "%r7")
    )
    x = rng.integers(0, 256, 512, dtype=np.uint8)
    result = launch(kernel(body, 2), x, np.zeros(512, np.uint8))
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], x)


@pytest.mark.instruction("cp")
@pytest.mark.parametrize("to", ["tile", "global"])
def test_every_lane_may_copy_a_different_number_of_bytes(
    to: str, launch: Launch, kernel: Text, rng: np.random.Generator
) -> None:
    """Lane n copies 16 (n % 5) bytes from 128 n to 128 n, all counted at one barrier, or stored again."""
    body = START + """
    rem.u32 %r5, %r1, 5; mul.lo.u32 %r5, %r5, 16; mul.lo.u32 %r2, %r1, 128; cvt.u64.u32 %d1, %r2; add.u64 %d2, %p0, %d1;
    add.u64 %d3, %p1, %d1; add.u32 %r3, %r8, %r2;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r9], %r5; bar.sync 0; @!%q2 mbarrier.arrive.shared.b64 _, [%r9];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d2], %r5, [%r9];
    """ + WAIT + """
    cp.async.bulk.global.shared::cta.bulk_group [%d3], [%r3], %r5; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
    """  # fmt: skip
    x = rng.integers(1, 256, (32, 128), dtype=np.uint8)
    result = launch(kernel(body, 2), x, np.zeros((32, 128), np.uint8))
    assert not result.findings
    want = np.where(np.arange(128)[None, :] < 16 * (np.arange(32) % 5)[:, None], x, 0)
    assert np.array_equal(result.arrays["a1"], want)


@pytest.mark.instruction("createpolicy")
def test_cache_policies_change_nothing(launch: Launch, kernel: Text, rng: np.random.Generator) -> None:
    body = START + """
    createpolicy.fractional.L2::evict_first.b64 %d5, 1.0;
    ld.global.L1::evict_last.L2::cache_hint.u32 %r4, [%p0], %d5; @!%q2 st.global.L2::cache_hint.u32 [%p1+512], %r4, %d5;
    """ + EXPECT.format(size=512) + LOAD.format(to="cluster", hint=".L2::cache_hint", policy=", %d5", size=512) + WAIT + SHOW  # fmt: skip
    x = rng.integers(0, 256, 512, dtype=np.uint8)
    result = launch(kernel(body, 2), x, np.zeros(516, np.uint8))
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], np.append(x, x[:4]))


@pytest.mark.parametrize("prefetch", ["", ".L2::cache_hint"])
def test_a_bulk_prefetch_changes_nothing(prefetch: str, launch: Launch, kernel: Text) -> None:
    policy = ", %d5" if prefetch else ""
    body = f"mov.u64 %d5, 0; cp.async.bulk.prefetch.L2.global{prefetch} [%p0], 64{policy}; ret;"
    result = launch(kernel(body), np.arange(16, dtype=np.int32), count=True)
    assert not result.findings
    assert result.counters is not None
    assert result.counters.global_load_sectors == 0


KINDS: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
REDUCTIONS = [
    *((("add", kind)) for kind in ("u32", "s32", "u64", "f16", "bf16", "f32", "f64")),
    *((action, kind) for action in ("min", "max") for kind in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    *((action, kind) for action in ("and", "or", "xor") for kind in ("b32", "b64")),
    ("inc", "u32"), ("dec", "u32"),
]  # fmt: skip


def reduced(action: str, kind: str, old: Any, value: Any, rounded: Callable[..., float]) -> Any:
    """One element's reduction in exact arithmetic."""
    if action == "add" and kind[0] in "fb":
        return rounded(Fraction(float(old)) + Fraction(float(value)), kind)
    if kind[0] in "fb" and action in {"min", "max"}:
        return (min if action == "min" else max)(float(old), float(value))
    bits = int(kind[1:])
    a, b = int(old), int(value)
    found = {
        "add": a + b, "min": min(a, b), "max": max(a, b), "and": a & b, "or": a | b, "xor": a ^ b,
        "inc": 0 if a >= b else a + 1, "dec": b if a == 0 or a > b else a - 1,
    }[action]  # fmt: skip
    found %= 1 << bits
    return found - (1 << bits) if kind[0] == "s" and found >> (bits - 1) else found


def as_array(values: list[Any], dtype: Any) -> np.ndarray:
    """Numbers that the dtype holds exactly; Python integers would become float64 on the way to 64-bit ones."""
    return np.array(values, dtype if dtype.kind in "iu" else np.float64).astype(dtype)


@pytest.mark.instruction("cp")
@pytest.mark.parametrize(("action", "kind"), REDUCTIONS, ids=lambda value: str(value))
def test_reductions_of_global_memory_are_exact(
    action: str, kind: str, launch: Launch, kernel: Text, rounded: Callable[..., float]
) -> None:
    dtype = np.dtype(KINDS[kind])
    random = np.random.default_rng(len(action) + dtype.itemsize)
    if kind[0] in "us" or action in {"and", "or", "xor"}:
        x, y = (random.integers(0, 256, 512, dtype=np.uint8).view(dtype) for _ in range(2))
        x[:4], y[:4] = 3, [0, 3, 4, 2]
    else:
        x, y = (
            (random.standard_normal(512 // dtype.itemsize) * 2.0 ** random.integers(-6, 6)).astype(dtype)
            for _ in range(2)
        )
    noftz = ".noftz" if action == "add" and kind in {"f16", "bf16"} else ""
    copy = f"@!%q2 cp.reduce.async.bulk.global.shared::cta.bulk_group.{action}{noftz}.{kind} [%p1], [%r8], 512;"
    result = launch(kernel(START + FILL + FENCE + copy + COMMIT.format(read="", left=0) + "ret;", 2), x, y, count=True)
    assert not result.findings
    want = as_array([reduced(action, kind, b, a, rounded) for a, b in zip(x, y, strict=True)], dtype)
    assert result.arrays["a1"].tobytes() == want.tobytes()
    assert result.counters is not None
    assert (result.counters.global_atomic_requests, result.counters.global_atomic_sectors) == (1, 16)


@pytest.mark.instruction("cp")
@pytest.mark.parametrize(
    ("action", "kind"), [("add", "u32"), ("add", "u64"), ("max", "s32"), ("inc", "u32"), ("xor", "b32")]
)
def test_reductions_of_shared_memory_are_exact(
    action: str, kind: str, launch: Launch, kernel: Text, rounded: Callable[..., float]
) -> None:
    dtype = np.dtype(KINDS[kind])
    x = np.random.default_rng(5).integers(0, 256, 512, dtype=np.uint8).view(dtype)
    second = FILL.replace("%r8", "%r7")
    copy = f"""
    @!%q2 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{action}.{kind} [%r8], [%r7], 512, [%r9];
    """
    body = START + FILL + second + FENCE + EXPECT.format(size=512) + copy + WAIT + SHOW
    result = launch(kernel(body, 2), x, np.zeros_like(x))
    assert not result.findings
    want = as_array([reduced(action, kind, a, a, rounded) for a in x], dtype)
    assert np.array_equal(result.arrays["a1"], want)


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        (LOAD.format(to="cluster", hint="", policy="", size=40), "bulk copy of 40 bytes, which is not a multiple of 16"),
        (LOAD.format(to="cluster", hint="", policy="", size=64).replace("[%p0]", "[%p0+8]"), "at byte 8 of a0, which is not a multiple of 16"),
        (LOAD.format(to="cluster", hint="", policy="", size=64).replace("[%r8]", "[%r8+4]"), "of shared memory, which is not a multiple of 16"),
    ],
)  # fmt: skip
def test_sizes_and_addresses_must_be_multiples_of_sixteen(copy: str, said: str, launch: Launch, kernel: Text) -> None:
    size = 40 if "40" in said else 64
    body = START + ".loc 1 7 3\n" + copy + "\n.loc 1 8 3\n" + EXPECT.format(size=size) + WAIT + "ret;"
    (finding,) = launch(kernel(body, 2), np.zeros(64, np.int32), np.zeros(1, np.int32)).findings
    assert (finding.code, finding.line) == ("misaligned-access", 7)
    assert said in finding.message


@pytest.mark.parametrize(
    ("copy", "code"),
    [
        (LOAD.format(to="cluster", hint="", policy="", size=512), "out-of-bounds-read"),
        (LOAD.format(to="cluster", hint="", policy="", size=64).replace("[%r8]", "[%r8+16384]"), "out-of-bounds-write"),
        ("@!%q2 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%p0+192], [%r8], 128;", "out-of-bounds-write"),
    ],
)  # fmt: skip
def test_copies_outside_of_an_array_are_found(copy: str, code: str, launch: Launch, kernel: Text) -> None:
    size = 512 if "512" in copy else 64
    fill = (
        "mov.u32 %r2, 0; mul.lo.u32 %r3, %r1, 16; add.u32 %r3, %r8, %r3; st.shared.v4.u32 [%r3], {%r2, %r2, %r2, %r2};"
    )
    wait = "" if "reduce" in copy else EXPECT.format(size=size) + WAIT
    fill = fill + FENCE if "reduce" in copy else ""
    body = START + fill + ".loc 1 7 3\n" + copy + wait + "ret;"
    (finding,) = launch(kernel(body, 2), np.zeros(64, np.int32), np.zeros(1, np.int32)).findings
    assert (finding.code, finding.line) == (code, 7)


@pytest.mark.parametrize(
    "instruction",
    [
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r8], [%p0], 64, [%r9], %h1",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%p0], [%r8], 64, %h1",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.f32 [%p0], [%r8], 64",
    ],
)
def test_other_forms_are_refused_by_name(instruction: str, launch: Launch, kernel: Text) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"async\.bulk"):
        launch(kernel(START + instruction + "; ret;", 2), np.zeros(64, np.int32), np.zeros(1, np.int32))


def codes(result: RunResult) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize(
    ("wait", "raced"),
    [
        (WAIT, False),
        ("", True),
        ("bar.sync 0;", True),
        (f"@%q2 bra ON; {WAIT} ON: bar.sync 0;", False),
        (f"@%q2 bra ON; {WAIT} ON: bar.warp.sync 0xffffffff;", False),
        (f"@%q2 bra ON; {WAIT} ON:", True),
        (WAIT.replace("parity", "parity.relaxed.cta"), True),
    ],
)
def test_a_load_is_there_for_those_who_know_its_phase_complete(
    wait: str, raced: bool, launch: Launch, kernel: Text
) -> None:
    body = START + EXPECT.format(size=512) + LOAD.format(to="cluster", hint="", policy="", size=512) + wait + SHOW
    result = launch(kernel(body, 2), np.arange(128, dtype=np.int32), np.zeros(128, np.int32))
    assert codes(result) == ["shared-race"] * raced
    if raced:
        assert "which the bulk copy of thread 0 has written" in result.findings[0].message
        assert "mbarrier.try_wait" in result.findings[0].message


def test_waiting_for_another_barrier_does_not_help(launch: Launch, kernel: Text) -> None:
    """Two copies on two barriers: after the wait for one, only its own bytes are there."""
    load = LOAD.format(to="cluster", hint="", policy="", size=512)
    body = START + """
    .shared .align 8 .b64 second; mov.u32 %r6, second; @!%q2 mbarrier.init.shared.b64 [%r6], 1; bar.sync 0;
    """ + EXPECT.format(size=512) + load + (EXPECT.format(size=512) + load.replace("[%r8]", "[%r7]")).replace("%r9", "%r6")  # fmt: skip
    arrays = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    assert codes(launch(kernel(body + WAIT + SHOW, 2), *arrays)) == []
    assert codes(launch(kernel(body + WAIT + SHOW.replace("%r8", "%r7"), 2), *arrays)) == ["shared-race"]


@pytest.mark.parametrize(
    ("fence", "raced"),
    [
        (FENCE, False),
        ("bar.sync 0;", True),
        ("bar.sync 0; @!%q2 fence.proxy.async;", False),
        ("@!%q2 fence.proxy.async; bar.sync 0;", True),
        ("fence.proxy.async.global; bar.sync 0;", True),
        ("fence.proxy.async; bar.warp.sync 0xffffffff;", False),
        ("fence.proxy.alias; bar.sync 0;", True),
        ("membar.cta; bar.sync 0;", True),
        ("bar.sync 0; setp.eq.u32 %q4, %r1, 5; @%q4 fence.proxy.async; bar.sync 0;", False),
    ],
)
def test_a_copy_sees_generic_writes_only_behind_a_proxy_fence(
    fence: str, raced: bool, launch: Launch, kernel: Text
) -> None:
    store = STORE.format(hint="", policy="", size=512)
    body = START + ".loc 1 5 1\n" + FILL + ".loc 1 6 1\n" + fence + ".loc 1 7 1\n" + store + "ret;"
    result = launch(kernel(body, 2), np.arange(128, dtype=np.int32), np.zeros(128, np.int32))
    assert codes(result) == ["shared-race"] * raced
    if raced:
        assert result.findings[0].line == 7
        assert "no proxy fence is between the two" in result.findings[0].message
        assert "fence.proxy.async" in result.findings[0].message


@pytest.mark.parametrize(
    ("wait", "raced"),
    [
        (COMMIT.format(read=".read", left=0) + "bar.sync 0;", False),
        (COMMIT.format(read="", left=0) + "bar.sync 0;", False),
        ("@!%q2 cp.async.bulk.commit_group; bar.sync 0;", True),
        (COMMIT.format(read=".read", left=1) + "bar.sync 0;", True),
        ("@!%q2 cp.async.bulk.wait_group.read 0; bar.sync 0;", True),
        (COMMIT.format(read=".read", left=1) + COMMIT.format(read=".read", left=1) + "bar.sync 0;", False),
        (COMMIT.format(read=".read", left=2) + COMMIT.format(read="", left=2) + "bar.sync 0;", True),
        ("bar.sync 0;" + COMMIT.format(read=".read", left=0), True),
    ],
)
def test_a_source_may_be_overwritten_once_it_has_been_read(
    wait: str, raced: bool, launch: Launch, kernel: Text
) -> None:
    store = STORE.format(hint="", policy="", size=512)
    again = FILL.replace("ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d1];", "mov.u32 %r10, 9;")
    body = START + FILL + FENCE + store + wait + again + "ret;"
    result = launch(kernel(body, 2), np.arange(128, dtype=np.int32), np.zeros(128, np.int32))
    assert codes(result) == ["shared-race"] * raced
    if raced:
        assert "which the bulk copy of thread 0 has read" in result.findings[0].message
        assert "cp.async.bulk.wait_group.read" in result.findings[0].message


@pytest.mark.parametrize(("read", "raced"), [("", False), (".read", True)])
def test_stored_bytes_are_there_for_the_thread_that_waited_for_the_writes(
    read: str, raced: bool, launch: Launch, kernel: Text
) -> None:
    store = STORE.format(hint="", policy="", size=512)
    body = START + FILL + FENCE + store + COMMIT.format(read=read, left=0) + "@%q2 ret; ld.global.u32 %r2, [%p1]; st.global.u32 [%p1+512], %r2; ret;"  # fmt: skip
    result = launch(kernel(body, 2), np.arange(7, 135, dtype=np.int32), np.zeros(132, np.int32))
    assert codes(result) == ["global-race"] * raced
    assert result.arrays["a1"][128] == 7


@pytest.mark.parametrize(("other", "raced"), [(0, False), (1, True)])
def test_another_block_does_not_know_of_the_wait(other: int, raced: bool, launch: Launch, kernel: Text) -> None:
    """Each of two blocks stores 512 bytes, waits for them, and reads its own or the other's first word."""
    body = START + f"""
    mov.u32 %r2, %ctaid.x; xor.b32 %r3, %r2, {other}; mul.wide.u32 %d6, %r2, 512; mul.wide.u32 %d7, %r3, 512;
    add.u64 %p1, %p1, %d6; add.u64 %d7, %p1, %d7; sub.u64 %d7, %d7, %d6;
    """ + FILL + FENCE + STORE.format(hint="", policy="", size=512) + COMMIT.format(read="", left=0) + """
    @%q2 ret; ld.global.u32 %r4, [%d7]; mov.u32 %r2, %ctaid.x; mul.wide.u32 %d6, %r2, 4; ld.param.u64 %d7, [p1];
    add.u64 %d6, %d7, %d6; st.global.u32 [%d6+1024], %r4; ret;
    """  # fmt: skip
    result = launch(kernel(body, 2), np.arange(7, 135, dtype=np.int32), np.zeros(258, np.int32), grid=(2,))
    assert codes(result) == ["global-race"] * raced


def test_bytes_that_never_come_are_a_hang_that_names_them(launch: Launch, kernel: Text) -> None:
    body = (
        START
        + EXPECT.format(size=1024)
        + LOAD.format(to="cluster", hint="", policy="", size=512)
        + ".loc 1 9 5\n"
        + WAIT
        + "ret;"
    )
    (finding,) = launch(kernel(body, 2), np.zeros(128, np.int32), np.zeros(1, np.int32)).findings
    assert (finding.code, finding.line) == ("hang", 9)
    assert "the mbarrier bar (byte 0 of shared memory) waits for 0 arrivals" in finding.message
    assert "of the 1024 bytes that it expects 512 have arrived" in finding.message


def test_reductions_of_several_blocks_do_not_race_with_each_other(launch: Launch, kernel: Text) -> None:
    copy = "@!%q2 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%p1], [%r8], 512;"
    x, y = np.arange(128, dtype=np.uint32), np.ones(128, np.uint32)
    result = launch(kernel(START + FILL + FENCE + copy + "ret;", 2), x, y, grid=(5,))
    assert not result.findings
    assert np.array_equal(result.arrays["a1"], 5 * x + 1)
    plain = STORE.format(hint="", policy="", size=512)
    stored = launch(kernel(START + FILL + FENCE + plain + "ret;", 2), x, y, grid=(5,))
    assert [finding.severity for finding in stored.findings] == ["note"]
