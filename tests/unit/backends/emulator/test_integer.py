"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

EDGES = [0, 1, 2, 3, 5, 31, 32, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1]
WIDE_EDGES = [*EDGES, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0]


def numbers(kind: str, rng: np.random.Generator, count: int = 240) -> np.ndarray:
    """Edges and random values of a type, as its own dtype."""
    bits = int(kind[1:])
    edges = [value & (2**bits - 1) for value in (WIDE_EDGES if bits == 64 else EDGES)]
    drawn = (
        rng.integers(0, 2**bits, count - len(edges), dtype=np.uint64)
        if bits < 64
        else rng.integers(0, 2**64, count - len(edges), dtype=np.uint64, endpoint=False)
    )
    small = drawn >> rng.integers(0, bits, len(drawn)).astype(np.uint64)
    values = np.concatenate((np.array(edges, np.uint64), small))
    rng.shuffle(values)
    unsigned = values.astype(f"u{bits // 8}")
    return unsigned.view(f"i{bits // 8}") if kind[0] == "s" else unsigned


def wrap(value: int, kind: str) -> int:
    """A value as the bits of a type."""
    return value & (2 ** int(kind[1:]) - 1)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: (a * b) >> bits,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
    "div": lambda a, b, bits: truncated(a, b) if b else -1,
    "rem": lambda a, b, bits: a - truncated(a, b) * b if b else a,
}


@pytest.mark.instruction("add", "sub", "mul", "div", "rem", "min", "max")
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary_operations(name: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b = numbers(kind, rng), numbers(kind, rng)
    found = lanewise(f"{name}.{kind} %x, %a, %b;", [kind], [(kind, a), (kind, b)])
    bits = int(kind[1:])
    assert [int(value) for value in found] == [
        wrap(BINARY[name](int(x), int(y), bits), kind) for x, y in zip(a, b, strict=True)
    ]


@pytest.mark.instruction("mul", "mad")
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products_keep_every_bit(kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    a, b, c = numbers(kind, rng), numbers(kind, rng), numbers(wide, rng)
    found = lanewise(
        f"mul.wide.{kind} %x, %a, %b; mad.wide.{kind} %y, %a, %b, %c;", [wide, wide], [(kind, a), (kind, b), (wide, c)]
    )
    assert [int(value) for value in found[0]] == [wrap(int(x) * int(y), wide) for x, y in zip(a, b, strict=True)]
    assert [int(value) for value in found[1]] == [
        wrap(int(x) * int(y) + int(z), wide) for x, y, z in zip(a, b, c, strict=True)
    ]


@pytest.mark.instruction("mad")
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_multiply_add(half: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = (numbers(kind, rng) for _ in range(3))
    found = lanewise(f"mad.{half}.{kind} %x, %a, %b, %c;", [kind], [(kind, a), (kind, b), (kind, c)])
    shift = int(kind[1:]) if half == "hi" else 0
    assert [int(v) for v in found] == [
        wrap((int(x) * int(y) >> shift) + int(z), kind) for x, y, z in zip(a, b, c, strict=True)
    ]


@pytest.mark.instruction("abs", "neg")
@pytest.mark.parametrize("kind", ["s32", "s64", "s16"])
def test_absolute_value_and_negation_wrap_at_the_lowest_number(
    kind: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = numbers(kind, rng)
    found = lanewise(f"abs.{kind} %x, %a; neg.{kind} %y, %a;", [kind, kind], [(kind, a)])
    assert [int(v) for v in found[0]] == [wrap(abs(int(x)), kind) for x in a]
    assert [int(v) for v in found[1]] == [wrap(-int(x), kind) for x in a]


@pytest.mark.instruction("add", "sub")
def test_saturating_sums(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b = numbers("s32", rng), numbers("s32", rng)
    found = lanewise("add.sat.s32 %x, %a, %b; sub.sat.s32 %y, %a, %b;", ["s32", "s32"], [("s32", a), ("s32", b)])

    def clamp(value: int) -> int:
        return wrap(max(-(2**31), min(2**31 - 1, value)), "s32")

    assert [int(v) for v in found[0]] == [clamp(int(x) + int(y)) for x, y in zip(a, b, strict=True)]
    assert [int(v) for v in found[1]] == [clamp(int(x) - int(y)) for x, y in zip(a, b, strict=True)]


@pytest.mark.instruction("addc", "subc")
def test_carries_make_128_bit_sums_of_64_bit_halves(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b = numbers("u64", rng), numbers("u64", rng)
    split = "mov.b64 {%t0, %t1}, %a; mov.b64 {%t2, %t3}, %b;"
    added = lanewise(
        f"{split} add.cc.u32 %t4, %t0, %t2; addc.cc.u32 %t5, %t1, %t3; addc.u32 %y, 0, 0; mov.b64 %x, {{%t4, %t5}};",
        ["u64", "u32"], [("u64", a), ("u64", b)],
    )  # fmt: skip
    totals = [int(x) + int(y) for x, y in zip(a, b, strict=True)]
    assert [int(v) for v in added[0]] == [total & (2**64 - 1) for total in totals]
    assert [int(v) for v in added[1]] == [total >> 64 for total in totals]
    taken = lanewise(
        f"{split} sub.cc.u32 %t4, %t0, %t2; subc.cc.u32 %t5, %t1, %t3; subc.u32 %y, 0, 0; mov.b64 %x, {{%t4, %t5}};",
        ["u64", "u32"], [("u64", a), ("u64", b)],
    )  # fmt: skip
    assert [int(v) for v in taken[0]] == [(int(x) - int(y)) & (2**64 - 1) for x, y in zip(a, b, strict=True)]
    assert [int(v) for v in taken[1]] == [0xFFFFFFFF if x < y else 0 for x, y in zip(a, b, strict=True)]


@pytest.mark.instruction("madc")
def test_carries_make_a_long_product(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = numbers("u32", rng), numbers("u32", rng), numbers("u64", rng)
    body = (
        "mov.b64 {%t0, %t1}, %c; mad.lo.cc.u32 %t2, %a, %b, %t0; madc.hi.cc.u32 %t3, %a, %b, %t1;"
        "addc.u32 %y, 0, 0; mov.b64 %x, {%t2, %t3};"
    )
    found = lanewise(body, ["u64", "u32"], [("u32", a), ("u32", b), ("u64", c)])
    totals = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
    assert [int(v) for v in found[0]] == [total & (2**64 - 1) for total in totals]
    assert [int(v) for v in found[1]] == [total >> 64 for total in totals]


@pytest.mark.instruction("mul24", "mad24")
@pytest.mark.parametrize("kind", ["s32", "u32"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_24_bit_products(half: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = (numbers(kind, rng) for _ in range(3))
    found = lanewise(
        f"mul24.{half}.{kind} %x, %a, %b; mad24.{half}.{kind} %y, %a, %b, %c;",
        [kind, kind],
        [(kind, a), (kind, b), (kind, c)],
    )

    def low24(value: int) -> int:
        cut = value & 0xFFFFFF
        return cut - (1 << 24) if kind == "s32" and cut >> 23 else cut

    products = [low24(int(x)) * low24(int(y)) >> (16 if half == "hi" else 0) for x, y in zip(a, b, strict=True)]
    assert [int(v) for v in found[0]] == [wrap(product, kind) for product in products]
    assert [int(v) for v in found[1]] == [wrap(product + int(z), kind) for product, z in zip(products, c, strict=True)]


@pytest.mark.instruction("sad")
@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_sum_of_absolute_differences(kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = (numbers(kind, rng) for _ in range(3))
    found = lanewise(f"sad.{kind} %x, %a, %b, %c;", [kind], [(kind, a), (kind, b), (kind, c)])
    assert [int(v) for v in found] == [
        wrap(abs(int(x) - int(y)) + int(z), kind) for x, y, z in zip(a, b, c, strict=True)
    ]


def part(value: int, index: int, bits: int, signed: bool) -> int:
    cut = value >> (index * bits) & (2**bits - 1)
    return cut - 2**bits if signed and cut >> (bits - 1) else cut


@pytest.mark.instruction("dp4a", "dp2a")
@pytest.mark.parametrize("left", ["s32", "u32"])
@pytest.mark.parametrize("right", ["s32", "u32"])
def test_dot_products_of_bytes(left: str, right: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = (numbers("u32", rng) for _ in range(3))
    sources = [("u32", a), ("u32", b), ("u32", c)]
    four = lanewise(f"dp4a.{left}.{right} %x, %a, %b, %c;", ["u32"], sources)
    two = lanewise(
        f"dp2a.lo.{left}.{right} %x, %a, %b, %c; dp2a.hi.{left}.{right} %y, %a, %b, %c;", ["u32", "u32"], sources
    )
    signs = left == "s32", right == "s32"
    rows = [tuple(map(int, row)) for row in zip(a, b, c, strict=True)]
    assert [int(v) for v in four] == [
        wrap(z + sum(part(x, i, 8, signs[0]) * part(y, i, 8, signs[1]) for i in range(4)), "u32") for x, y, z in rows
    ]
    for shift, found in ((0, two[0]), (2, two[1])):
        assert [int(v) for v in found] == [
            wrap(z + sum(part(x, i, 16, signs[0]) * part(y, i + shift, 8, signs[1]) for i in range(2)), "u32")
            for x, y, z in rows
        ]


@pytest.mark.instruction("add", "max")
def test_packed_halves_are_taken_by_themselves(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b = numbers("u32", rng), numbers("u32", rng)
    found = lanewise("add.u16x2 %x, %a, %b; max.s16x2 %y, %a, %b;", ["u32", "u32"], [("u32", a), ("u32", b)])
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    assert found[0].tolist() == [
        ((x & 0xFFFF) + (y & 0xFFFF)) & 0xFFFF | (((x >> 16) + (y >> 16)) & 0xFFFF) << 16 for x, y in rows
    ]
    assert found[1].tolist() == [
        sum((max(part(x, i, 16, True), part(y, i, 16, True)) & 0xFFFF) << 16 * i for i in range(2)) for x, y in rows
    ]


@pytest.mark.instruction("add", "addc", "sub", "subc")
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_chains_of_carries_of_every_width(
    name: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b, c, d = (numbers(kind, rng) for _ in range(4))
    for x in (a, c):  # where a carry must run through the whole word
        x[:40] = -1 if kind[0] == "s" else 2 ** int(kind[1:]) - 1
    bits = int(kind[1:])
    low, high = lanewise(
        f"{name}.cc.{kind} %x, %a, %b; {name}c.{kind} %y, %c, %d;",
        [kind, kind], [(kind, a), (kind, b), (kind, c), (kind, d)],
    )  # fmt: skip
    mask = 2**bits - 1
    for values in zip(a, b, c, d, low, high, strict=True):
        x, y, u, v, got_low, got_high = (int(value) & mask for value in values)
        first, second = x | u << bits, y | v << bits
        want = (first + second if name == "add" else first - second) & (2 ** (2 * bits) - 1)
        assert (got_low, got_high) == (want & mask, want >> bits)


@pytest.mark.instruction("mad", "madc")
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_multiply_add_takes_and_gives_the_carry(
    half: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b, c, d, e = (numbers(kind, rng) for _ in range(5))
    bits = int(kind[1:])
    mask, shift = 2**bits - 1, bits if half == "hi" else 0
    body = f"mad.{half}.cc.{kind} %x, %a, %b, %c; madc.{half}.cc.{kind} %x, %d, %e, %x; addc.{kind} %y, 0, 0;"
    found, carry = lanewise(body, [kind, kind], [(kind, value) for value in (a, b, c, d, e)])
    for x, y, z, u, v, got, out in zip(a, b, c, d, e, found, carry, strict=True):
        first = (int(x) * int(y) >> shift & mask) + (int(z) & mask)
        second = (int(u) * int(v) >> shift & mask) + (first & mask) + (first >> bits)
        assert (int(got), int(out)) == (second & mask, second >> bits)


@pytest.mark.instruction("min", "max")
@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize(
    "form", ["{}.s32.relu", "{}.relu.s32", "{}.s16x2.relu", "{}.relu.s16x2", "{}.s16x2", "{}.u16x2"]
)
def test_minimum_and_maximum_rectified_or_in_halves(
    form: str, name: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b = numbers("u32", rng), numbers("u32", rng)
    found = lanewise(f"{form.format(name)} %x, %a, %b;", ["u32"], [("u32", a), ("u32", b)])
    bits, signed = 16 if "x2" in form else 32, "u16" not in form
    choose = {"min": min, "max": max}[name]
    for x, y, got in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        for index in range(32 // bits):
            want = choose(part(x, index, bits, signed), part(y, index, bits, signed))
            want = max(want, 0) if "relu" in form else want
            assert part(got, index, bits, signed) == want


@pytest.mark.instruction("mad", "mad24")
def test_saturating_high_products(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b, c = (numbers("s32", rng) for _ in range(3))
    sources = [("s32", a), ("s32", b), ("s32", c)]
    full, low = lanewise("mad.hi.sat.s32 %x, %a, %b, %c; mad24.hi.sat.s32 %y, %a, %b, %c;", ["s32", "s32"], sources)
    for x, y, z, got, got24 in zip(a, b, c, full, low, strict=True):
        clamp = [max(-(2**31), min(2**31 - 1, value + int(z))) for value in (
            int(x) * int(y) >> 32, part(int(x), 0, 24, True) * part(int(y), 0, 24, True) >> 16,
        )]  # fmt: skip
        assert [int(got), int(got24)] == [wrap(value, "s32") for value in clamp]
