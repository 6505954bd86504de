"""`wgmma.mma_async`: against exact sums, the ISA's formulas of fragments and its canonical layouts of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction

Make = Callable[..., Any]
pytestmark = pytest.mark.instruction("wgmma")

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
}
INNER = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle mode of a descriptor by the bytes of a line."""
SECOND = 20480
"""Offset of B in shared memory, behind the largest A."""
THREADS = 128


@dataclass(frozen=True)
class Operand:
    """A matrix in shared memory: elements, bytes of a swizzled line (0 for none), and whether MN is the major dimension."""

    elements: np.ndarray
    swizzle: int = 128
    by_mn: bool = False
    start: int = 0

    def strides(self) -> tuple[int, int]:
        """Leading and stride byte offset, with a gap of one pattern between some of the patterns."""
        size = self.elements.itemsize
        extent, inner = self.elements.shape
        if not self.by_mn:
            pattern = 8 * (self.swizzle or 16)
            rows = extent // 8
            return (pattern * (rows + 1), pattern) if not self.swizzle else (16, pattern * (1 + (rows <= 8)))
        pattern = 8 * (self.swizzle or 16)
        across = max(1, extent * size // (self.swizzle or 16))
        return (
            (pattern, 2 * pattern)
            if not self.swizzle
            else (pattern * (inner // 8), pattern)
            if across > 1
            else (16, pattern)
        )

    def place(self, mn: int, k: int) -> int:
        """Byte offset of an element: canonical layouts of the ISA, in units of elements, then the swizzle of byte addresses."""
        leading, stride = self.strides()
        size, width = self.elements.itemsize, max(1, self.swizzle // 16)
        unit = 16 // size
        lead, across = leading // size, stride // size
        if not self.by_mn:
            along = lead if not self.swizzle else unit
            element = mn % 8 * width * unit + mn // 8 * across + k % unit + k // unit * along
        elif not self.swizzle:
            element = mn % unit + mn // unit * across + k % 8 * unit + k // 8 * lead
        else:
            element = (
                mn % unit
                + mn // unit % width * unit
                + mn // (unit * width) * lead
                + k % 8 * width * unit
                + k // 8 * across
            )
        address = self.start + element * size
        return address ^ ((address >> 7 & width - 1) << 4)

    def image(self, memory: dict[int, np.ndarray]) -> None:
        """Adds the matrix to the contents of shared memory, by address."""
        raw = self.elements.view(np.uint8).reshape(*self.elements.shape, -1)
        memory.update((self.place(mn, k), raw[mn, k]) for mn, k in np.ndindex(self.elements.shape))

    def descriptor(self) -> int:
        """The 64-bit matrix descriptor."""
        leading, stride = self.strides()
        return self.start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[self.swizzle] << 62


def fragment(matrix: np.ndarray, packed: int) -> np.ndarray:
    """A matrix of 64 rows as the registers of 128 threads: (128, elements); `packed` elements are adjacent in a row."""
    found = []
    for thread in range(THREADS):
        warp, lane = divmod(thread, 32)
        elements = [
            matrix[16 * warp + lane // 4 + 8 * half, 4 * packed * part + lane % 4 * packed + place]
            for part in range(matrix.shape[1] // (4 * packed))
            for half in range(2)
            for place in range(packed)
        ]
        found.append(elements)
    return np.array(found, matrix.dtype)


def braces(names: Sequence[str]) -> str:
    return "{" + ", ".join(names) + "}"


def product(
    launch: Make, kernel: Make, kinds: str, a: Operand | np.ndarray, b: Operand, sums: np.ndarray, modifiers: str, *,
    accumulates: int = 1, columns: int | None = None, **options: Any,
) -> np.ndarray:  # fmt: skip
    """One `wgmma.mma_async` of one warpgroup; A as a matrix comes in registers. Returns D."""
    left = kinds.split(".")[1]
    columns = columns or sums.shape[1]
    contents: dict[int, np.ndarray] = {}
    b.image(contents)
    packed = {"b1": 1, "tf32": 1}.get(left, 4 // np.dtype(TYPES.get(left, np.uint32)).itemsize)
    held = np.zeros((THREADS, 4), np.uint32)
    if isinstance(a, Operand):
        a.image(contents)
    else:
        held = np.ascontiguousarray(fragment(a, packed)).view(np.uint32)
    memory = np.zeros(-(-(max(contents) + 16) // 512) * 512, np.uint8)
    for at, element in contents.items():
        memory[at : at + len(element)] = element
    accumulators = np.ascontiguousarray(fragment(sums, 2)).view(np.uint32)
    count = accumulators.shape[1]
    shape = f"m64n{columns}k{INNER[left]}"
    d, x = [f"%s{i}" for i in range(count)], [f"%x{i}" for i in range(4)]
    first = "%da" if isinstance(a, Operand) else braces(x)
    code = [
        "mul.wide.u32 %d1, %tid1, 4; add.s64 %d0, %p0, %d1; mov.u32 %r1, tile; mad.lo.u32 %r1, %tid1, 4, %r1; mov.u32 %r2, 0;",
        "COPY: ld.global.b32 %r3, [%d0]; st.shared.b32 [%r1], %r3; add.s64 %d0, %d0, 512; add.u32 %r1, %r1, 512;",
        f"add.u32 %r2, %r2, 512; setp.lt.u32 %q1, %r2, {len(memory)}; @%q1 bra COPY;",
        "fence.proxy.async.shared::cta; bar.sync 0;",
        "mul.wide.u32 %d1, %tid1, 16; add.s64 %d0, %p1, %d1;",
        *[f"ld.global.b32 {name}, [%d0+{4 * i}];" for i, name in enumerate(x)],
        f"mul.wide.u32 %d1, %tid1, {4 * count}; add.s64 %d0, %p2, %d1;",
        *[f"ld.global.b32 {name}, [%d0+{4 * i}];" for i, name in enumerate(d)],
        f"mov.b64 %da, {a.descriptor() if isinstance(a, Operand) else 0}; mov.b64 %db, {b.descriptor()};",
        f"setp.ne.u32 %q2, {accumulates}, 0; wgmma.fence.sync.aligned;",
        f"wgmma.mma_async.sync.aligned.{shape}.{kinds} {braces(d)}, {first}, %db, %q2{modifiers};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *[f"st.global.b32 [%d0+{4 * i}], {name};" for i, name in enumerate(d)],
        "ret;",
    ]
    text = kernel(
        "\n".join(code), 3, before=f".shared .align 1024 .b8 tile[{len(memory)}];",
        declarations=f".reg .b32 %s<{count}>, %x<4>; .reg .b64 %da, %db;",
    )  # fmt: skip
    done = launch(text, memory, held, accumulators, block=(THREADS,), **options)
    assert not done.findings, done.findings
    out = done.arrays["a2"].view(sums.dtype)
    result = np.empty_like(sums)
    places = fragment(np.arange(64 * columns).reshape(64, columns), 2)
    result.reshape(-1)[places] = out
    return result


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Values whose products and sums are exact in double precision."""
    if kind in {"s8", "u8", "s32"}:
        limits = np.iinfo(TYPES[kind])
        return rng.integers(limits.min, limits.max, shape, dtype=np.int64, endpoint=True).astype(TYPES[kind])
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, shape)
    made = values.astype(np.float32)
    if kind == "tf32":
        made = (made.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return made.astype(TYPES[kind])


def exact(a: np.ndarray, b: np.ndarray, c: np.ndarray, factor: int = 1) -> np.ndarray:
    """A B + C of values that `drawn` gives, rounded once; integers wrap."""
    if c.dtype == np.int32:
        return (a.astype(np.int64) @ b.astype(np.int64).T + c).astype(np.int32)
    return (factor * (a.astype(np.float64) @ b.astype(np.float64).T) + c).astype(c.dtype)


def operands(
    kinds: str, columns: int, rng: np.random.Generator, swizzle: int = 128, by_mn: tuple[bool, bool] = (False, False)
) -> tuple[Operand, Operand, np.ndarray]:
    out, left, right = kinds.split(".")[:3]
    inner = INNER[left]
    a = Operand(drawn(left, (64, inner), rng), swizzle, by_mn[0])
    b = Operand(drawn(right, (columns, inner), rng), swizzle, by_mn[1], SECOND)
    return a, b, drawn(out, (64, columns), rng)


FAMILIES = {
    "f32.f16.f16": ", 1, 1, 0, 0",
    "f16.f16.f16": ", 1, 1, 0, 0",
    "f32.bf16.bf16": ", 1, 1, 0, 0",
    "f32.tf32.tf32": ", 1, 1",
    **{f"{out}.{a}.{b}": ", 1, 1" for out in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
    **{f"s32.{a}.{b}": "" for a in ("s8", "u8") for b in ("s8", "u8")},
}
"""Types of D, A and B, and the operands after `scale-d` of a plain product."""


def modifiers_of(
    kinds: str, text: str, *, in_registers: bool = False, by_mn: tuple[bool, bool] = (False, False)
) -> str:
    if "f16" not in kinds.split(".")[1]:
        return text
    return f"{text[:6]}{'' if in_registers else f', {int(by_mn[0])}'}, {int(by_mn[1])}"


@pytest.mark.parametrize("columns", [8, 64, 256])
@pytest.mark.parametrize("kinds", FAMILIES)
def test_a_product_is_the_exact_sum_rounded_once(
    launch: Make, kernel: Make, rng: np.random.Generator, kinds: str, columns: int
) -> None:
    a, b, c = operands(kinds, columns, rng)
    got = product(launch, kernel, kinds, a, b, c, FAMILIES[kinds])
    assert np.array_equal(got, exact(a.elements, b.elements, c))
    got = product(launch, kernel, kinds, a.elements, b, c, modifiers_of(kinds, FAMILIES[kinds], in_registers=True))
    assert np.array_equal(got, exact(a.elements, b.elements, c))


COLUMNS = [
    (kinds, n) for kinds in ("f32.f16.f16", "f32.tf32.tf32", "f16.e4m3.e5m2", "s32.s8.u8") for n in range(8, 257, 8)
]


@pytest.mark.exhaustive(share=0.05)
@pytest.mark.parametrize(("kinds", "columns"), COLUMNS, ids=lambda value: str(value))
def test_every_extent_of_n(launch: Make, kernel: Make, rng: np.random.Generator, kinds: str, columns: int) -> None:
    a, b, c = operands(kinds, columns, rng)
    if kinds.startswith("s32") and columns % 16 and columns not in {8, 24}:
        with pytest.raises(UnsupportedInstruction, match="wgmma"):
            product(launch, kernel, kinds, a, b, c, FAMILIES[kinds])
        return
    assert np.array_equal(product(launch, kernel, kinds, a, b, c, FAMILIES[kinds]), exact(a.elements, b.elements, c))


LAYOUTS = [
    (kinds, swizzle, by_mn)
    for kinds in ("f32.f16.f16", "f32.tf32.tf32", "f32.e4m3.e4m3")
    for swizzle in MODES
    for by_mn in ([(False, False), (True, False), (False, True), (True, True)] if "f16" in kinds else [(False, False)])
]


@pytest.mark.parametrize(("kinds", "swizzle", "by_mn"), LAYOUTS, ids=lambda value: str(value))
def test_every_layout_of_shared_memory(
    launch: Make, kernel: Make, rng: np.random.Generator, kinds: str, swizzle: int, by_mn: tuple[bool, bool]
) -> None:
    a, b, c = operands(kinds, 128, rng, swizzle, by_mn)
    got = product(launch, kernel, kinds, a, b, c, modifiers_of(kinds, FAMILIES[kinds], by_mn=by_mn))
    assert np.array_equal(got, exact(a.elements, b.elements, c))


@pytest.mark.parametrize(("signs", "factor"), [("1, -1", -1), ("-1, 1", -1), ("-1, -1", 1)])
def test_operands_are_negated(launch: Make, kernel: Make, rng: np.random.Generator, signs: str, factor: int) -> None:
    a, b, c = operands("f32.bf16.bf16", 16, rng)
    got = product(launch, kernel, "f32.bf16.bf16", a, b, c, f", {signs}, 0, 0")
    assert np.array_equal(got, exact(a.elements, b.elements, c, factor))


def test_an_accumulator_that_is_not_scaled_is_ignored_even_if_it_is_no_number(
    launch: Make, kernel: Make, rng: np.random.Generator
) -> None:
    a, b, c = operands("f32.f16.f16", 16, rng)
    c[...] = np.nan
    got = product(launch, kernel, "f32.f16.f16", a, b, c, ", 1, 1, 0, 0", accumulates=0)
    assert np.array_equal(got, exact(a.elements, b.elements, np.zeros_like(c)))


def test_integer_sums_saturate_where_the_instruction_says_so_and_wrap_elsewhere(
    launch: Make, kernel: Make, rng: np.random.Generator
) -> None:
    a, b = Operand(np.full((64, 32), 127, np.int8)), Operand(np.full((16, 32), 127, np.int8), start=SECOND)
    c = np.full((64, 16), 2**31 - 5, np.int32)
    assert (product(launch, kernel, "s32.s8.s8.satfinite", a, b, c, "") == 2**31 - 1).all()
    assert (product(launch, kernel, "s32.s8.s8", a, b, c, "") == 2**31 - 5 + 32 * 127 * 127 - 2**32).all()


@pytest.mark.parametrize("in_registers", [False, True])
def test_bits_are_counted(launch: Make, kernel: Make, rng: np.random.Generator, in_registers: bool) -> None:
    a, b = (rng.integers(0, 256, (rows, 32), dtype=np.uint8) for rows in (64, 24))
    c = drawn("s32", (64, 24), rng) // 4
    left = a.view(np.uint32) if in_registers else Operand(a)
    got = product(launch, kernel, "s32.b1.b1.and.popc", left, Operand(b, start=SECOND), c, "")
    bits = [np.unpackbits(matrix, axis=1).astype(np.int64) for matrix in (a, b)]
    assert np.array_equal(got, bits[0] @ bits[1].T + c)


def test_lower_bits_of_tf32_are_ignored(launch: Make, kernel: Make, rng: np.random.Generator) -> None:
    a, b, c = operands("f32.tf32.tf32", 8, rng)
    noisy = Operand((a.elements.view(np.uint32) | 0x1FFF).view(np.float32))
    want = exact(a.elements, b.elements, c)
    assert np.array_equal(product(launch, kernel, "f32.tf32.tf32", noisy, b, c, ", 1, 1"), want)
    assert np.array_equal(product(launch, kernel, "f32.tf32.tf32", noisy.elements, b, c, ", 1, 1"), want)


@pytest.mark.parametrize("base", [1, 2, 4])
def test_a_pattern_that_starts_between_boundaries_has_a_base_offset(
    launch: Make, kernel: Make, rng: np.random.Generator, base: int
) -> None:
    class Shifted(Operand):
        def place(self, mn: int, k: int) -> int:
            return Operand(self.elements).place(mn, k) + 128 * base

        def descriptor(self) -> int:
            return Operand(self.elements, start=128 * base).descriptor() | base << 49

    a, b, c = operands("f32.f16.f16", 8, rng)
    got = product(launch, kernel, "f32.f16.f16", Shifted(a.elements), b, c, ", 1, 1, 0, 0")
    assert np.array_equal(got, exact(a.elements, b.elements, c))


def test_a_step_along_k_moves_the_start_within_the_swizzled_line(
    launch: Make, kernel: Make, rng: np.random.Generator
) -> None:
    whole = {start: drawn("f16", (rows, 64), rng) for start, rows in ((0, 64), (SECOND, 16))}

    class Part(Operand):
        def image(self, memory: dict[int, np.ndarray]) -> None:
            Operand(whole[self.start], start=self.start).image(memory)

        def descriptor(self) -> int:
            return Operand(whole[self.start], start=self.start).descriptor() + (32 * 3 >> 4)

    a, b = (Part(np.ascontiguousarray(matrix[:, 48:]), start=start) for start, matrix in whole.items())
    c = drawn("f32", (64, 16), rng)
    assert np.array_equal(
        product(launch, kernel, "f32.f16.f16", a, b, c, ", 1, 1, 0, 0"), exact(a.elements, b.elements, c)
    )


@pytest.mark.parametrize(
    "instruction",
    [
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f1}, %d1, %d2, %q1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3}, %d1, %d2, %q1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, %q1, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, %q1, 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%r1, %r2}, %d1, %d2, %q1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.b1.b1 {%r1, %r2, %r3, %r4}, %d1, %d2, %q1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, %r1, 0, %q1, 1, 1, 0, 0;",
        "wgmma.wait_group.sync.aligned %r1;",
    ],
)
def test_other_forms_are_refused_by_name(launch: Make, kernel: Make, instruction: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"wgmma\."):
        launch(kernel(instruction + " ret;"), np.zeros(1, np.int32), block=(THREADS,))
