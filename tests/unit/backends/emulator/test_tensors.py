"""Copies by tensor maps against a model element by element, and real kernels with bulk copies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.launch_objects import TENSOR_MAP_BYTES, TensorMap
from kernelmate.config import load_settings
from kernelmate.records import Compiled, LaunchShape, Target
from kernelmate.session import Session
from kernelmate.source import load_kernel

Make = Callable[..., Compiled]
DATA = Path(__file__).resolve().parents[4] / "tests" / "data" / "bulk"

KERNEL = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 array, .param .u64 out)
{{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<16>;
.shared .align 1024 .b8 tile[{bytes}]; .shared .align 8 .b64 bar;
ld.param.u64 %d1, [array]; ld.param.u64 %d2, [out]; mov.b64 %d3, map; cvta.param.u64 %d3, %d3;
mov.u32 %r1, tile; mov.u32 %r2, bar; mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0;
{coordinates}
@!%p1 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;
{body}
}}
"""
CLEAR = """
mov.u32 %r6, %r3; mov.u32 %r5, 0;
FILL: setp.ge.u32 %p3, %r6, {bytes}; @%p3 bra DONE; add.u32 %r4, %r1, %r6; st.shared.u8 [%r4], %r5; add.u32 %r6, %r6, 32; bra FILL;
DONE: fence.proxy.async.shared::cta; bar.sync 0;
"""
LOAD = """
@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {expected};
.loc 1 7 3
@!%p1 cp.async.bulk.tensor.{rank}d.shared::cluster.global{tile}.mbarrier::complete_tx::bytes{hint} [%r1], [%d3, {{{names}}}], [%r2]{policy};
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;
MORE: setp.ge.u32 %p3, %r3, {bytes}; @%p3 ret; add.u32 %r4, %r1, %r3; ld.shared.u8 %r5, [%r4];
cvt.u64.u32 %d4, %r3; add.u64 %d4, %d2, %d4; st.global.u8 [%d4], %r5; add.u32 %r3, %r3, 32; bra MORE;
"""
STORE = """
mov.u32 %r6, %r3;
FILL: setp.ge.u32 %p3, %r6, {bytes}; @%p3 bra DONE; add.u32 %r4, %r1, %r6;
cvt.u64.u32 %d4, %r6; add.u64 %d4, %d2, %d4; ld.global.u8 %r5, [%d4]; st.shared.u8 [%r4], %r5; add.u32 %r6, %r6, 32; bra FILL;
DONE: {fence} bar.sync 0;
.loc 1 7 3
@!%p1 cp.{reduce}async.bulk.tensor.{rank}d.global.shared::cta{action}{tile}.bulk_group [%d3, {{{names}}}], [%r1];
@!%p1 cp.async.bulk.commit_group; @!%p1 cp.async.bulk.wait_group 0; ret;
"""


class Box:
    """A box of an array as the driver's API and the PTX ISA define it, the slowest dimension first."""

    def __init__(self, shape: tuple[int, ...], box: tuple[int, ...], dtype: Any = np.float32, swizzle: int = 0,
                 steps: tuple[int, ...] | None = None, nan_fill: bool = False) -> None:  # fmt: skip
        self.shape, self.box, self.dtype, self.swizzle = shape, box, np.dtype(dtype), swizzle
        self.steps = steps or (1,) * len(shape)
        self.nan_fill = nan_fill
        self.counts = tuple(-(-size // step) for size, step in zip(box, self.steps, strict=True))
        self.bytes = int(np.prod(self.counts)) * self.dtype.itemsize
        # A row that is narrower than the swizzle's span has a span for itself.
        self.pitch = max(self.counts[-1] * self.dtype.itemsize, swizzle)
        self.span = self.bytes // (self.counts[-1] * self.dtype.itemsize) * self.pitch

    def map(self, name: str) -> TensorMap:
        reverse = (part[::-1] for part in (self.shape, self.box, self.steps))
        return TensorMap(name, self.dtype.name, *reverse, self.swizzle, self.nan_fill)

    def places(self, corner: tuple[int, ...]) -> list[tuple[int, tuple[int, ...] | None]]:
        """Of each element of the box its byte in shared memory, and its index in the array, None outside of it."""
        found = []
        for number, index in enumerate(itertools.product(*map(range, self.counts))):
            at = tuple(c + i * s for c, i, s in zip(corner, index, self.steps, strict=True))
            inside = all(0 <= one < extent for one, extent in zip(at, self.shape, strict=True))
            row, column = divmod(number, self.counts[-1])
            byte = row * self.pitch + column * self.dtype.itemsize
            if self.swizzle:
                # The chunk's number in its span, exclusive-or the number of its row of 128 bytes.
                chunk, line = byte // 16 % 8, byte // 128
                byte += 16 * ((chunk ^ (line % (self.swizzle // 16))) - chunk)
            found.append((byte, at if inside else None))
        return found


def launched(box: Box, corner: tuple[int, ...], array: np.ndarray, out: np.ndarray, body: str, tools: tuple[Make, Target],
             **parts: Any) -> RunResult:  # fmt: skip
    compiled, gpu = tools
    names = [f"%r{10 + number}" for number in range(len(corner))]
    coordinates = " ".join(f"mov.u32 {name}, {value};" for name, value in zip(names, reversed(corner), strict=True))
    options = {
        "tile": ".tile",
        "hint": "",
        "policy": "",
        "fence": "fence.proxy.async.shared::cta;",
        "reduce": "",
        "action": "",
    }
    options |= {"expected": box.bytes} | parts
    text = body.format(bytes=box.span, rank=len(corner), names=", ".join(names), **options)
    ptx = KERNEL.format(bytes=box.span, coordinates=coordinates, body=text)
    arguments = (
        ScalarArgument("map", np.void(bytes(TENSOR_MAP_BYTES)), tensor_map=box.map("array")),
        ArrayArgument("array", array),
        ArrayArgument("out", out),
    )
    return (
        EmulatorBackend().load(compiled(ptx), gpu).run(Run(LaunchShape((1, 1, 1), (32, 1, 1)), arguments, count=True))
    )


@pytest.fixture
def tools(compiled: Make, gpu: Target) -> tuple[Make, Target]:
    return compiled, gpu


def drawn(box: Box, seed: int = 3) -> np.ndarray:
    random = np.random.default_rng(seed)
    if box.dtype.kind in "iu":
        return random.integers(1, 100, box.shape).astype(box.dtype)
    return (1 + random.random(box.shape)).astype(box.dtype)


CASES = [
    (Box((200,), (64,)), (-8,)),
    (Box((200,), (64,)), (164,)),
    (Box((20, 24), (8, 16)), (3, 4)),
    (Box((20, 24), (8, 16)), (-2, 12)),
    (Box((20, 24), (8, 16)), (16, -4)),
    (Box((20, 24), (8, 16)), (40, 40)),
    (Box((20, 24), (8, 8), swizzle=32), (0, 0)),
    (Box((20, 24), (16, 16), swizzle=64), (1, 4)),
    (Box((40, 36), (20, 32), swizzle=128), (10, 8)),
    (Box((20, 64), (16, 64), np.float16, swizzle=128), (0, 0)),
    (Box((20, 48), (9, 32), np.uint8), (12, 16)),
    (Box((12, 10), (4, 2), np.float64), (9, 8)),
    (Box((20, 24), (8, 16), steps=(3, 1)), (4, 4)),
    (Box((6, 7, 16), (2, 3, 8), np.int32), (4, 5, 4)),
    (Box((6, 7, 16), (2, 4, 16), ml_dtypes.bfloat16, nan_fill=True), (5, -2, 8)),
    (Box((20, 24), (8, 16), nan_fill=True), (15, 12)),
    (Box((20, 24), (8, 16), np.float16, nan_fill=True), (15, 16)),
    (Box((3, 4, 5, 16), (2, 2, 3, 8), np.int64), (2, 3, 3, 10)),
    (Box((2, 3, 4, 5, 16), (2, 1, 2, 3, 16), np.uint16), (1, 2, 3, -1, 8)),
    (Box((2, 3, 4, 5, 16), (2, 3, 4, 3, 8), np.float32, steps=(1, 2, 1, 2, 1)), (0, 1, 0, 1, 4)),
    (Box((20, 48), (9, 16), np.uint8, swizzle=128), (12, 16)),
    (Box((20, 24), (8, 4), swizzle=64), (3, -4)),
    (Box((6, 20, 16), (3, 5, 8), np.float16, swizzle=32), (1, 17, 8)),
]  # fmt: skip


@pytest.mark.instruction("cp")
@pytest.mark.parametrize(("box", "corner"), CASES, ids=lambda part: getattr(part, "box", part).__repr__())
def test_a_box_is_loaded_as_the_model_says(box: Box, corner: tuple[int, ...], tools: tuple[Make, Target]) -> None:
    x = drawn(box)
    want = np.zeros(box.span, np.uint8)
    sectors = set()
    for byte, at in box.places(corner):
        fill = b"\xf7\x7f" * (box.dtype.itemsize // 2) if box.nan_fill else bytes(box.dtype.itemsize)
        raw = fill if at is None else x[at].tobytes()
        want[byte : byte + len(raw)] = np.frombuffer(raw, np.uint8)
        if at is not None:
            sectors.add(np.ravel_multi_index(at, box.shape) * box.dtype.itemsize // 32)
    body = (CLEAR if box.span > box.bytes else "") + LOAD
    found = launched(box, corner, x, np.zeros(box.span, np.uint8), body, tools)
    assert not found.findings
    assert np.array_equal(found.arrays["out"], want)
    assert found.counters is not None
    assert found.counters.global_load_sectors == len(sectors)


@pytest.mark.instruction("cp")
@pytest.mark.parametrize(("box", "corner"), CASES, ids=lambda part: getattr(part, "box", part).__repr__())
def test_a_box_is_stored_as_the_model_says(box: Box, corner: tuple[int, ...], tools: tuple[Make, Target]) -> None:
    x, values = drawn(box), drawn(Box((box.span // box.dtype.itemsize,), (1,), box.dtype), 4)
    want = x.copy()
    for byte, at in box.places(corner):
        if at is not None:
            want[at] = values[byte // box.dtype.itemsize]
    found = launched(box, corner, x, values, STORE, tools, tile="")
    if min(corner) < 0:
        (finding,) = found.findings
        assert finding.code == "trap"
        assert str(tuple(reversed(corner))) in finding.message or len(corner) == 1
        want = x
    else:
        assert not found.findings
    assert found.arrays["array"].tobytes() == want.tobytes()


@pytest.mark.instruction("cp")
@pytest.mark.parametrize(
    ("action", "dtype", "model"),
    [
        ("add", np.float32, np.add), ("add", np.float16, np.add), ("add", np.uint64, np.add), ("min", np.int32, np.minimum),
        ("max", np.int64, np.maximum), ("xor", np.uint32, np.bitwise_xor), ("or", np.uint64, np.bitwise_or),
    ],
)  # fmt: skip
def test_boxes_are_reduced(action: str, dtype: Any, model: np.ufunc, tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 8), dtype, swizzle=64 if np.dtype(dtype).itemsize == 8 else 0)
    x, values = drawn(box), drawn(Box((64,), (1,), dtype), 4)
    want = x.copy()
    for byte, at in box.places((15, 16)):
        if at is not None:
            want[at] = model(want[at], values[byte // box.dtype.itemsize])
    found = launched(box, (15, 16), x, values, STORE, tools, reduce="reduce.", action=f".{action}")
    assert not found.findings
    assert np.array_equal(found.arrays["array"], want)


@pytest.mark.parametrize("corner", [(3, 5), (3, -3), (-1, 2)])
@pytest.mark.parametrize("body", [LOAD, STORE])
def test_a_box_begins_at_a_multiple_of_16_bytes(body: str, corner: tuple[int, int], tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    x, other = drawn(box), np.zeros(box.bytes, np.uint8)
    findings = launched(box, corner, x, other, body, tools).findings
    assert next(one.code for one in findings) == "trap"
    assert f"element {corner[1]} of its rows, byte {4 * corner[1]}," in findings[0].message


def test_cache_hints_and_prefetches_are_ignored(tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    prefetch = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d3, {{%r10, %r11}}];"
    x = drawn(box)
    found = launched(
        box,
        (3, 4),
        x,
        np.zeros(512, np.uint8),
        prefetch + "mov.u64 %d5, 0;" + LOAD,
        tools,
        hint=".L2::cache_hint",
        policy=", %d5",
    )
    assert not found.findings
    assert np.array_equal(found.arrays["out"].view(np.float32).reshape(8, 16), x[3:11, 4:20])


def test_a_box_that_is_stored_without_a_proxy_fence_is_a_race(tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    (finding,) = launched(box, (3, 4), drawn(box), drawn(box).reshape(-1)[:128], STORE, tools, fence="").findings
    assert (finding.code, finding.line) == ("shared-race", 7)
    assert "fence.proxy.async" in finding.message


def test_a_box_whose_bytes_are_miscounted_is_a_hang(tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    (finding,) = launched(box, (3, 4), drawn(box), np.zeros(512, np.uint8), LOAD, tools, expected=500).findings
    assert finding.code == "hang"
    assert "of the 500 bytes that it expects 512 have arrived" in finding.message


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("[%r1], [%d3", "[%r1+16], [%d3", "misaligned-access", "not a multiple of 128"),
        ("[%r1], [%d3", "[%r1], [%d1", "illegal-address", "by a tensor map at an address where none is"),
        ("2d.shared::cluster.global.tile", "1d.shared::cluster.global.tile", "illegal-address", "1 coordinates by a tensor map of 2"),
    ],
)  # fmt: skip
def test_misuse_of_a_tensor_map_is_found(old: str, new: str, code: str, said: str, tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    body = LOAD.replace(old.replace("2d", "{rank}d").replace(".tile", "{tile}"), new.replace(".tile", "{tile}"))
    body = body.replace("{{{names}}}", "{{%r10}}") if new.startswith("1d") else body
    found = launched(box, (3, 4), drawn(box), np.zeros(512, np.uint8), body, tools).findings
    assert (found[0].code, found[0].line) == (code, 7)
    assert said in found[0].message


def test_other_modes_are_refused_by_name(tools: tuple[Make, Target]) -> None:
    box = Box((20, 24), (8, 16))
    with pytest.raises(UnsupportedInstruction, match=r"tensor\.2d.*gather4"):
        launched(box, (3, 4), drawn(box), np.zeros(512, np.uint8), LOAD, tools, tile=".tile::gather4")


@pytest.mark.parametrize("name", ["transpose", "row_sums"])
def test_kernels_with_bulk_copies_are_judged_right(name: str) -> None:
    kernel = load_kernel(str(DATA / f"{name}.cu"))
    with Session(load_settings(seed=5, backend="emulator", timeout_s=600)) as session:
        (verdict,) = session.bench(kernel)
    assert verdict.correct is True
    assert not [finding for finding in verdict.findings if finding.severity == "error"]
    assert verdict.counters is not None
    size = verdict.cases[0].size
    once = size["rows"] * size["cols"] * 4 // 32
    assert verdict.counters.global_load_sectors == once


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("", "", None, ""),
        ("    __syncthreads();\n    if (thread == 0 && number", "    if (thread == 0 && number", "shared-race", "the bulk copy of thread 0"),
        ("    while (!ptx::mbarrier_try_wait_parity(&full[stage], number / STAGES % 2)) {\n    }\n", "", "shared-race", "has written"),
        ("&full[stage], number", "&full[1 - stage], number", "hang", "waits for 1 arrival"),
        ("space_shared, bar, sizeof(tile[0])", "space_shared, bar, 1024", "hang", "of the 1024 bytes that it expects 2048 have arrived"),
        ("row + number * TILE", "row + number * TILE + 1", "misaligned-access", "which is not a multiple of 16"),
        ("number < STAGES && number < tiles", "number < STAGES", "out-of-bounds-read", "of x, which has 4096 bytes"),
    ],
)  # fmt: skip
def test_mistakes_in_a_double_buffered_kernel_are_found(
    old: str, new: str, code: str | None, said: str, cuda: Callable[..., Any], run_cuda: Callable[..., RunResult]
) -> None:
    text = (DATA / "row_sums.cu").read_text()
    assert old in text
    cols = 512 if code == "out-of-bounds-read" else 2560
    x = np.random.default_rng(5).random((2, cols), np.float32)
    result = run_cuda(
        cuda(text.replace(old, new)),
        ("x", x, 0, False),
        ("y", np.zeros(2, np.float32)),
        np.int32(cols),
        grid=(2,),
        block=(128,),
    )
    assert [finding.code for finding in result.findings][:1] == ([code] if code else [])
    assert not code or said in result.findings[0].message
    assert code or np.allclose(result.arrays["y"], x.sum(axis=1), rtol=1e-5)
