"""Logic, shifts, fields and permutes against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def words(rng: np.random.Generator, bits: int = 32, count: int = 300) -> np.ndarray:
    edges = [0, 1, 2, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 0x55555555, 0xF0F0F0F0]
    drawn = [
        int(value) >> int(shift)
        for value, shift in zip(rng.integers(0, 2**63, count), rng.integers(0, 62, count), strict=True)
    ]
    return np.array(
        [value & (2**bits - 1) for value in edges] + [value & (2**bits - 1) for value in drawn], f"u{bits // 8}"
    )


def counts(rng: np.random.Generator, like: np.ndarray, highest: int) -> np.ndarray:
    return rng.integers(0, highest, len(like), dtype=np.uint32)


@pytest.mark.instruction("and", "or", "xor", "not", "cnot")
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(bits: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng, bits)
    b = rng.permutation(a)
    kind, mask = f"b{bits}", 2**bits - 1
    for name, expected in {
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
    }.items():
        found = lanewise(f"{name}.{kind} %x, %a, %b;", [kind], [(kind, a), (kind, b)])
        assert found.tolist() == [expected(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    found = lanewise(f"not.{kind} %x, %a; cnot.{kind} %y, %a;", [kind, kind], [(kind, a)])
    assert found[0].tolist() == [~int(x) & mask for x in a]
    assert found[1].tolist() == [int(x == 0) for x in a]


@pytest.mark.instruction("shl", "shr")
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_by_the_width_and_more(bits: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng, bits)
    n = counts(rng, a, bits + 8)
    n[:3] = (bits, bits - 1, 0xFFFFFFFF)
    sources = [(f"u{bits}", a), ("u32", n)]
    mask = 2**bits - 1
    left, right = lanewise(f"shl.b{bits} %x, %a, %b; shr.u{bits} %y, %a, %b;", [f"u{bits}"] * 2, sources)
    signed = lanewise(f"shr.s{bits} %x, %a, %b;", [f"u{bits}"], sources)
    rows = [(int(x), int(y)) for x, y in zip(a, n, strict=True)]
    assert left.tolist() == [x << y & mask if y < bits else 0 for x, y in rows]
    assert right.tolist() == [x >> y if y < bits else 0 for x, y in rows]
    assert signed.tolist() == [((x - 2**bits if x >> (bits - 1) else x) >> min(y, bits)) & mask for x, y in rows]


@pytest.mark.instruction("shl", "shr")
@pytest.mark.parametrize("count", [0, 1, 13, 31, 32, 77])
def test_shifts_by_a_constant(count: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng)
    left, right = lanewise(f"shl.b32 %x, %a, {count}; shr.u32 %y, %a, {count};", ["u32", "u32"], [("u32", a)])
    assert left.tolist() == [int(x) << count & 0xFFFFFFFF if count < 32 else 0 for x in a]
    assert right.tolist() == [int(x) >> count if count < 32 else 0 for x in a]


@pytest.mark.instruction("shf")
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng)
    b, n = rng.permutation(a), counts(rng, a, 70)
    left, right = lanewise(
        f"shf.l.{mode}.b32 %x, %a, %b, %c; shf.r.{mode}.b32 %y, %a, %b, %c;",
        ["u32", "u32"],
        [("u32", a), ("u32", b), ("u32", n)],
    )
    for x, y, shift, up, down in zip(a.tolist(), b.tolist(), n.tolist(), left.tolist(), right.tolist(), strict=True):
        k = min(shift, 32) if mode == "clamp" else shift & 31
        pair = y << 32 | x
        assert up == (pair << k) >> 32 & 0xFFFFFFFF
        assert down == pair >> k & 0xFFFFFFFF


@pytest.mark.instruction("popc", "clz", "brev")
@pytest.mark.parametrize("bits", [32, 64])
def test_counts_of_bits(bits: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng, bits)
    kind = f"b{bits}"
    ones, zeros = lanewise(f"popc.{kind} %x, %a; clz.{kind} %y, %a;", ["u32", "u32"], [(kind, a)])
    assert ones.tolist() == [int(x).bit_count() for x in a]
    assert zeros.tolist() == [bits - int(x).bit_length() for x in a]
    reverse = lanewise(f"brev.{kind} %x, %a;", [kind], [(kind, a)])
    assert reverse.tolist() == [int(f"{int(x):0{bits}b}"[::-1], 2) for x in a]


@pytest.mark.instruction("bfind")
@pytest.mark.parametrize("bits", [32, 64])
def test_the_most_significant_bit_that_differs_from_the_sign(
    bits: int, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = words(rng, bits)
    plain, amount = lanewise(f"bfind.u{bits} %x, %a; bfind.shiftamt.u{bits} %y, %a;", ["u32", "u32"], [(f"u{bits}", a)])
    signed = lanewise(f"bfind.s{bits} %x, %a;", ["u32"], [(f"u{bits}", a)])
    for x, high, shift, mixed in zip(a.tolist(), plain.tolist(), amount.tolist(), signed.tolist(), strict=True):
        top = x.bit_length() - 1
        assert high == (top if x else 0xFFFFFFFF)
        assert shift == (bits - 1 - top if x else 0xFFFFFFFF)
        folded = ~x & (2**bits - 1) if x >> (bits - 1) else x
        assert mixed == (folded.bit_length() - 1 if folded else 0xFFFFFFFF)


def field(value: int, start: int, size: int, bits: int, signed: bool) -> int:
    """Bit field extract, straight from the ISA's pseudocode."""
    sign_at = min(start + size - 1, bits - 1)
    sign = 0 if not signed or size == 0 else value >> sign_at & 1
    result = 0
    for index in range(bits):
        bit = value >> (index + start) & 1 if index < size and index + start < bits else sign
        result |= bit << index
    return result


@pytest.mark.instruction("bfe")
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(kind: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    bits = int(kind[1:])
    a = words(rng, bits)
    start, size = counts(rng, a, bits + 6), counts(rng, a, bits + 6)
    start[-1], size[-1] = 256 + 3, 256 + 5  # only the low byte counts
    found = lanewise(f"bfe.{kind} %x, %a, %b, %c;", [kind], [(kind, a), ("u32", start), ("u32", size)])
    rows = zip(a.tolist(), start.tolist(), size.tolist(), strict=True)
    assert [int(v) for v in found] == [field(x, s & 255, n & 255, bits, kind[0] == "s") for x, s, n in rows]


@pytest.mark.instruction("bfi")
@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng, bits)
    b, start, size = rng.permutation(a), counts(rng, a, bits + 6), counts(rng, a, bits + 6)
    kind = f"b{bits}"
    found = lanewise(f"bfi.{kind} %x, %a, %b, %c, %d;", [kind], [(kind, a), (kind, b), ("u32", start), ("u32", size)])
    for x, y, s, n, got in zip(a.tolist(), b.tolist(), start.tolist(), size.tolist(), found.tolist(), strict=True):
        mask = ((1 << n) - 1) << s & (2**bits - 1)
        assert got == (y & ~mask) | (x << s & mask)


MODES: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda i, s: (s + i) % 8,
    "b4e": lambda i, s: (s - i) % 8,
    "rc8": lambda i, s: s,
    "ecl": lambda i, s: max(s, i),
    "ecr": lambda i, s: min(s, i),
    "rc16": lambda i, s: (0, 1, 0, 1)[i] if s % 2 == 0 else (2, 3, 2, 3)[i],
}


@pytest.mark.instruction("prmt")
@pytest.mark.parametrize("mode", ["", *MODES])
def test_byte_permutes(mode: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng)
    b, c = rng.permutation(a), rng.integers(0, 2**32, len(a), dtype=np.uint32)
    found = lanewise(
        f"prmt.b32{'.' + mode if mode else ''} %x, %a, %b, %c;", ["u32"], [("u32", a), ("u32", b), ("u32", c)]
    )
    for x, y, control, got in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist(), strict=True):
        data = x.to_bytes(4, "little") + y.to_bytes(4, "little")
        want = 0
        for index in range(4):
            if mode:
                byte = data[MODES[mode](index, control & 3)]
            else:
                pick = control >> 4 * index & 15
                byte = data[pick & 7] if pick < 8 else (255 if data[pick & 7] & 128 else 0)
            want |= byte << 8 * index
        assert got == want


@pytest.mark.instruction("lop3")
@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xE8, 0xC0, 0xEA, 0x1B, 0xFF])
def test_functions_of_three_bits(table: int, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng)
    b, c = rng.permutation(a), rng.permutation(a)
    found = lanewise(f"lop3.b32 %x, %a, %b, %c, {table};", ["u32"], [("u32", a), ("u32", b), ("u32", c)])
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist(), strict=True):
        want = sum((table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i for i in range(32))
        assert got == want


@pytest.mark.instruction("bmsk")
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bit_masks(mode: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    start = rng.integers(0, 40, 200, dtype=np.uint32)
    size = rng.integers(0, 40, 200, dtype=np.uint32)
    found = lanewise(f"bmsk.{mode}.b32 %x, %a, %b;", ["u32"], [("u32", start), ("u32", size)])
    for s, n, got in zip(start.tolist(), size.tolist(), found.tolist(), strict=True):
        first, length = (s, min(n, 32)) if mode == "clamp" else (s & 31, n & 31)
        assert got == ((1 << length) - 1 << first) & 0xFFFFFFFF


@pytest.mark.instruction("fns")
def test_the_nth_set_bit(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    mask = words(rng)
    base, offset = rng.integers(0, 32, len(mask), dtype=np.uint32), rng.integers(-6, 7, len(mask), dtype=np.int32)
    found = lanewise("fns.b32 %x, %a, %b, %c;", ["u32"], [("u32", mask), ("u32", base), ("s32", offset)])
    for m, start, n, got in zip(mask.tolist(), base.tolist(), offset.tolist(), found.tolist(), strict=True):
        order = {0: range(start, start + 1), 1: range(start, 32), -1: range(start, -1, -1)}[(n > 0) - (n < 0)]
        hits = [place for place in order if m >> place & 1]
        want = hits[max(abs(n), 1) - 1] if len(hits) >= max(abs(n), 1) else 0xFFFFFFFF
        assert got == want


@pytest.mark.instruction("mov")
def test_packing_and_unpacking(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a, b = words(rng), words(rng)
    wide = lanewise("mov.b64 %x, {%a, %b};", ["u64"], [("u32", a), ("u32", b)])
    assert wide.tolist() == [int(x) | int(y) << 32 for x, y in zip(a, b, strict=True)]
    low, high = lanewise("mov.b64 {%x, %y}, %a;", ["u32", "u32"], [("u64", wide)])
    assert np.array_equal(low, a)
    assert np.array_equal(high, b)
    swapped = lanewise("mov.b32 {%s0, %s1}, %a; mov.b32 %x, {%s1, %s0};", ["u32"], [("u32", a)])
    assert swapped.tolist() == [int(x) >> 16 | (int(x) & 0xFFFF) << 16 for x in a]


@pytest.mark.instruction("szext")
def test_sign_extension_from_any_bit(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = words(rng)
    n = counts(rng, a, 40)
    signed = lanewise(
        "szext.clamp.s32 %x, %a, %b; szext.wrap.u32 %y, %a, %b;", ["u32", "u32"], [("u32", a), ("u32", n)]
    )
    for x, count, extended, cut in zip(a.tolist(), n.tolist(), signed[0].tolist(), signed[1].tolist(), strict=True):
        k = min(count, 32)
        low = x & ((1 << k) - 1)
        assert extended == ((low - (1 << k)) & 0xFFFFFFFF if k and low >> (k - 1) else low)
        assert cut == x & ((1 << (count & 31)) - 1)


@pytest.mark.instruction("lop3")
def test_every_function_of_three_bits(
    launch: Callable[..., Any], kernel: Callable[..., str], rng: np.random.Generator
) -> None:
    loads = "".join(f"add.s64 %d1, %p{index}, %off4; ld.global.u32 %r{index}, [%d1];" for index in (1, 2, 3))
    body = loads + "".join(
        f"lop3.b32 %r4, %r1, %r2, %r3, {table}; st.global.u32 [%at4+{128 * table}], %r4;" for table in range(256)
    )
    a, b, c = (rng.integers(0, 2**32, 32, dtype=np.uint32) for _ in range(3))
    found = launch(kernel(body + " ret;", 4), np.zeros((256, 32), np.uint32), a, b, c).arrays["a0"]
    ones = np.uint32(0xFFFFFFFF)
    for table in range(256):
        want = np.zeros(32, np.uint32)
        for case in range(8):
            if table >> case & 1:
                x, y, z = ((value if case >> bit & 1 else value ^ ones) for value, bit in ((a, 2), (b, 1), (c, 0)))
                want |= x & y & z
        assert np.array_equal(found[table], want), table


@pytest.mark.instruction("lop3")
@pytest.mark.parametrize("combine", ["or", "and"])
def test_a_function_of_three_bits_with_a_predicate(
    combine: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b, c = (rng.integers(0, 3, 300).astype(np.uint32) for _ in range(3))
    body = f"setp.gt.u32 %p1, %c, 1; lop3.{combine}.b32 %x|%p2, %a, %b, %c, 0x80, %p1; selp.u32 %y, 1, 0, %p2;"
    found, holds = lanewise(body, ["u32", "u32"], [("u32", a), ("u32", b), ("u32", c)])
    assert np.array_equal(found, a & b & c)
    some, given = (a & b & c) != 0, c > 1
    assert np.array_equal(holds.astype(bool), some | given if combine == "or" else some & given)


@pytest.mark.instruction("mov")
@pytest.mark.parametrize(("wide", "parts"), [("b64", 4), ("b32", 4), ("b32", 2), ("b64", 2)])
def test_vectors_into_one_register_and_out_again(
    wide: str, parts: int, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = words(rng, int(wide[1:]))
    size = int(wide[1:]) // parts
    names = {8: "%s", 16: "%s", 32: "%t"}[size]
    items = [f"{names}{index}" for index in range(parts)]
    body = f"mov.{wide} {{{', '.join(items)}}}, %a; mov.{wide} %x, {{{', '.join(reversed(items))}}};"
    found = lanewise(body, [wide], [(wide, a)])
    for x, got in zip(a.tolist(), found.tolist(), strict=True):
        pieces = [x >> size * index & (1 << size) - 1 for index in range(parts)]
        assert got == sum(piece << size * index for index, piece in enumerate(reversed(pieces)))
