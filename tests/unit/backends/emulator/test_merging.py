"""Loads from shared memory that ptxas makes one of, and the wavefronts that they then take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.counters import SharedCounter
from kernelmate.backends.emulator.decode import DecodedKernel, decode
from kernelmate.backends.emulator.link import link
from kernelmate.backends.emulator.machine import MemoryInstruction
from kernelmate.backends.emulator.operations import Load
from kernelmate.backends.emulator.ptx import parse_program

DECLARED = ".shared .align 16 .b8 tile[1024];\n"


@pytest.fixture
def widths(kernel: Callable[..., str]) -> Callable[[str], list[int | None]]:
    """The bytes that each load from shared memory of a kernel is expected to be served with."""

    def of(body: str) -> list[int | None]:
        text = kernel(body, declarations=DECLARED)
        decoded: DecodedKernel = decode(link(parse_program(text, "k"), "k"))
        return [
            decoded.served.get(number)
            for number, step in enumerate(decoded.steps)
            if isinstance(step.operation, Load) and step.operation.space == "shared"
        ]

    return of


BASE = "mov.u32 %r0, tile; mov.u32 %r1, %tid.y; shl.b32 %r2, %r1, 4; add.s32 %r3, %r0, %r2;\n"


def loads(*offsets: int, base: str = "%r3") -> str:
    return "".join(f"ld.shared.f32 %f{index}, [{base}+{offset}];\n" for index, offset in enumerate(offsets))


def test_four_neighbours_from_a_multiple_of_sixteen_are_one_load(widths) -> None:
    assert widths(BASE + loads(0, 4, 8, 12) + "ret;") == [16, 0, 0, 0]


def test_the_order_of_the_loads_does_not_matter(widths) -> None:
    assert widths(BASE + loads(12, 0, 8, 4) + "ret;") == [0, 16, 0, 0]


def test_two_neighbours_are_one_load_of_eight_bytes(widths) -> None:
    assert widths(BASE + loads(0, 4, 16) + "ret;") == [8, 0, None]


def test_neighbours_across_a_multiple_stay_apart(widths) -> None:
    assert widths(BASE + loads(4, 8) + "ret;") == [None, None]


def test_an_address_that_may_lie_anywhere_is_not_merged(widths) -> None:
    anywhere = BASE.replace("shl.b32 %r2, %r1, 4", "shl.b32 %r2, %r1, 2")
    assert widths(anywhere + loads(0, 4, 8, 12) + "ret;") == [None] * 4


def test_half_an_alignment_gives_half_a_merge(widths) -> None:
    eight = BASE.replace("shl.b32 %r2, %r1, 4", "shl.b32 %r2, %r1, 3")
    assert widths(eight + loads(0, 4, 8, 12) + "ret;") == [8, 0, 8, 0]


def test_a_store_between_keeps_loads_apart(widths) -> None:
    body = BASE + loads(0) + "st.shared.f32 [%r3+64], %f0;\n" + "ld.shared.f32 %f1, [%r3+4];\nret;"
    assert widths(body) == [None, None]


def test_volatile_loads_are_made_one_by_one(widths) -> None:
    assert widths(BASE + loads(0, 4).replace("ld.shared", "ld.volatile.shared") + "ret;") == [None, None]


def test_a_loop_counter_keeps_what_its_start_and_its_step_have_in_common(widths) -> None:
    loop = "mov.u32 %r4, tile;\nmov.u32 %r5, 0;\nAGAIN:\n" + loads(0, 4, 8, 12, base="%r4")
    step = "add.s32 %r4, %r4, {};\nadd.s32 %r5, %r5, 1;\nsetp.lt.s32 %q0, %r5, 4;\n@%q0 bra AGAIN;\nret;"
    assert widths(loop + step.format(16)) == [16, 0, 0, 0]
    assert widths(loop + step.format(24)) == [8, 0, 8, 0]
    assert widths(loop + step.format(4)) == [None] * 4


def test_absolute_addresses_are_merged_too(widths) -> None:
    body = "ld.shared.f32 %f0, [tile+16];\nld.shared.f32 %f1, [tile+20];\nret;"
    assert widths(body) == [8, 0]


def passes(offsets: list[int], size: int) -> int:
    counter = SharedCounter()
    lanes = np.arange(len(offsets))
    counter.access(MemoryInstruction(0, "load", size, size // 4, None), lanes, np.array(offsets), None)
    return counter.total("passes", "load")


@pytest.mark.parametrize(
    ("offsets", "size", "wanted"),
    [
        ([0] * 32, 16, 2),  # as an H100 counts for a broadcast of 16 bytes (matmul_tiled, layernorm)
        ([0] * 16 + [64] * 16, 16, 2),
        ([16 * lane for lane in range(32)], 16, 4),
        ([0] * 32, 8, 1),
        ([8 * lane for lane in range(32)], 8, 2),
        ([8 * (lane // 2) for lane in range(32)], 8, 1),
        ([0], 16, 1),
    ],
)
def test_wide_loads_take_as_many_wavefronts_as_parts_of_the_warp(offsets: list[int], size: int, wanted: int) -> None:
    assert passes(offsets, size) == wanted


@given(st.lists(st.integers(0, 7), min_size=1, max_size=32), st.sampled_from([8, 16]))
def test_wide_loads_never_take_fewer_wavefronts_than_their_words_fill(rows: list[int], size: int) -> None:
    offsets = [size * row for row in rows]
    words = len(set(rows)) * size // 4
    assert -(-words // 32) <= passes(offsets, size) <= size // 4 * 32


def test_counted_natively_as_by_numpy(launch: Callable[..., RunResult], kernel: Callable[..., str]) -> None:
    # Both modes of the suite's fixture must give the figure worked out by hand: lanes of a pair share 16 bytes.
    body = (
        "mov.u32 %r0, tile; mov.u32 %r1, %tid.x; shr.u32 %r1, %r1, 1; shl.b32 %r2, %r1, 4; add.s32 %r3, %r0, %r2;\n"
        "st.shared.v4.f32 [%r3], {%f0, %f0, %f0, %f0};\nbar.sync 0;\n"
        + loads(0, 4, 8, 12)
        + "st.global.f32 [%at4], %f3;\nret;"
    )
    result = launch(kernel(body, declarations=DECLARED), np.zeros(64, np.float32), block=(64,), count=True, check=False)
    assert result.counters is not None
    assert result.counters.shared_load_wavefronts == 2 * 2
