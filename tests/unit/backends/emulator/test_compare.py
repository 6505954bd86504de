"""Comparisons and selections."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

ORDERS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def grid(values: list[Any], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return a.ravel(), b.ravel()


@pytest.mark.instruction("setp", "selp")
@pytest.mark.parametrize("name", sorted(ORDERS))
def test_integers(name: str, lanewise: Callable[..., Any]) -> None:
    for kind, dtype, values in (
        ("s32", np.int32, [-(2**31), -1, 0, 1, 2**31 - 1]),
        ("u32", np.uint32, [0, 1, 2**31, 2**32 - 1]),
        ("s64", np.int64, [-(2**63), -1, 0, 2**63 - 1]),
        ("u16", np.uint16, [0, 1, 0x8000, 0xFFFF]),
    ):
        a, b = grid(values, dtype)
        size = f"u{a.itemsize}"
        found = lanewise(
            f"setp.{name}.{kind} %p1, %a, %b; selp.u32 %x, 1, 0, %p1;",
            ["u32"],
            [(kind, a.view(size)), (kind, b.view(size))],
        )
        assert found.astype(bool).tolist() == [bool(ORDERS[name](int(x), int(y))) for x, y in zip(a, b, strict=True)]


def test_unsigned_spellings(lanewise: Callable[..., Any]) -> None:
    a, b = grid([0, 1, 2**31, 2**32 - 1], np.uint32)
    for name, order in {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.items():
        found = lanewise(f"setp.{name}.u32 %p1, %a, %b; selp.u32 %x, 1, 0, %p1;", ["u32"], [("u32", a), ("u32", b)])
        assert found.astype(bool).tolist() == [bool(ORDERS[order](int(x), int(y))) for x, y in zip(a, b, strict=True)]


@pytest.mark.instruction("setp", "selp")
@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_floats_ordered_and_unordered(kind: str, lanewise: Callable[..., Any]) -> None:
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
    a, b = grid([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan], dtype)
    size = f"u{a.itemsize}"
    sources = [(kind, a.view(size)), (kind, b.view(size))]
    unordered = np.isnan(a) | np.isnan(b)
    for name, order in ORDERS.items():
        holds = np.array([bool(order(float(x), float(y))) for x, y in zip(a, b, strict=True)]) & ~unordered
        plain = lanewise(f"setp.{name}.{kind} %p1, %a, %b; selp.u32 %x, 1, 0, %p1;", ["u32"], sources)
        also = lanewise(f"setp.{name}u.{kind} %p1, %a, %b; selp.u32 %x, 1, 0, %p1;", ["u32"], sources)
        assert np.array_equal(plain.astype(bool), holds)
        assert np.array_equal(also.astype(bool), holds | unordered)
    number = lanewise(f"setp.num.{kind} %p1, %a, %b; selp.u32 %x, 1, 0, %p1;", ["u32"], sources)
    missing = lanewise(f"setp.nan.{kind} %p1, %a, %b; selp.u32 %x, 1, 0, %p1;", ["u32"], sources)
    assert np.array_equal(number.astype(bool), ~unordered)
    assert np.array_equal(missing.astype(bool), unordered)


@pytest.mark.parametrize(("name", "combine"), [("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)])
def test_a_second_predicate_is_combined(
    name: str, combine: Callable[[bool, bool], bool], lanewise: Callable[..., Any]
) -> None:
    a, b = grid([0, 1, 2, 3], np.uint32)
    body = f"setp.gt.u32 %p3, %a, 1; setp.lt.{name}.u32 %p1|%p2, %a, %b, %p3; selp.u32 %x, 1, 0, %p1; selp.u32 %y, 1, 0, %p2;"
    first, second = lanewise(body, ["u32", "u32"], [("u32", a), ("u32", b)])
    assert first.astype(bool).tolist() == [combine(bool(x < y), bool(x > 1)) for x, y in zip(a, b, strict=True)]
    assert second.astype(bool).tolist() == [combine(not x < y, bool(x > 1)) for x, y in zip(a, b, strict=True)]


def test_a_negated_predicate(lanewise: Callable[..., Any]) -> None:
    a, b = grid([0, 1, 2, 3], np.uint32)
    body = "setp.gt.u32 %p3, %a, 1; setp.lt.and.u32 %p1, %a, %b, !%p3; selp.u32 %x, 1, 0, %p1;"
    found = lanewise(body, ["u32"], [("u32", a), ("u32", b)])
    assert found.astype(bool).tolist() == [bool(x < y and not x > 1) for x, y in zip(a, b, strict=True)]


@pytest.mark.instruction("set")
def test_set_gives_ones_or_one(lanewise: Callable[..., Any]) -> None:
    a, b = grid([-1.0, 0.0, 2.0, np.nan], np.float32)
    mask, value = lanewise(
        "set.lt.u32.f32 %x, %a, %b; set.lt.f32.f32 %y, %a, %b;", ["u32", "f32"], [("f32", a), ("f32", b)]
    )
    assert np.array_equal(mask, np.where(a < b, np.uint32(0xFFFFFFFF), 0))
    assert np.array_equal(value.view(np.float32), (a < b).astype(np.float32))


def test_pairs_of_halves_compare_by_themselves(lanewise: Callable[..., Any]) -> None:
    a, b = grid([-1.0, 0.0, 2.0, 5.0], np.float16)
    sources = [("f16x2", a.view(np.uint32)), ("f16x2", b.view(np.uint32))]
    low, high = lanewise(
        "setp.gt.f16x2 %p1|%p2, %a, %b; selp.u32 %x, 1, 0, %p1; selp.u32 %y, 1, 0, %p2;", ["u32", "u32"], sources
    )
    assert np.array_equal(low.astype(bool), (a > b)[0::2])
    assert np.array_equal(high.astype(bool), (a > b)[1::2])
    ones = lanewise("set.gt.f16x2.f16x2 %x, %a, %b;", ["f16x2"], sources).view(np.float16)
    assert np.array_equal(ones, (a > b).astype(np.float16))
    masks = lanewise("set.gt.u32.f16x2 %x, %a, %b;", ["u32"], sources).view(np.uint16)
    assert np.array_equal(masks, np.where(a > b, np.uint16(0xFFFF), 0))


@pytest.mark.instruction("slct")
def test_selection_by_sign(lanewise: Callable[..., Any]) -> None:
    a, b = np.arange(8, dtype=np.uint32), np.arange(8, dtype=np.uint32) + 100
    c = np.array([-1, 0, 5, -(2**31), 2**31 - 1, -7, 1, 0], np.int32)
    found = lanewise("slct.u32.s32 %x, %a, %b, %c;", ["u32"], [("u32", a), ("u32", b), ("s32", c.view(np.uint32))])
    assert np.array_equal(found, np.where(c >= 0, a, b))
