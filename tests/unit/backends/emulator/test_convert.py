"""Conversions against rational numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


def dtype_of(kind: str) -> np.dtype[Any]:
    if kind in DTYPES:
        return np.dtype(DTYPES[kind])
    return np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")


def integers(kind: str, rng: np.random.Generator, count: int = 200) -> np.ndarray:
    dtype = dtype_of(kind)
    bits = 8 * dtype.itemsize
    drawn = rng.integers(0, 2**63, count, dtype=np.uint64) * np.uint64(2) + rng.integers(0, 2, count, dtype=np.uint64)
    drawn >>= rng.integers(0, 64, count).astype(np.uint64)
    edges = np.array(
        [0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1, 2**24 + 1 & (2**bits - 1), 2**53 + 1 & (2**bits - 1)],
        np.uint64,
    )
    return np.concatenate((edges, drawn)).astype(f"u{dtype.itemsize}").view(dtype)


@pytest.mark.instruction("cvt")
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(source: str, target: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = integers(source, rng)
    bits = int(target[1:])
    raw = a.view(f"u{a.itemsize}")
    plain, clamped = lanewise(
        f"cvt.{target}.{source} %x, %a; cvt.sat.{target}.{source} %y, %a;", [target, target], [(source, raw)]
    )
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    assert [int(v) for v in plain] == [int(x) & (2**bits - 1) for x in a]
    assert [int(v) for v in clamped] == [min(max(int(x), low), high) & (2**bits - 1) for x in a]


def test_a_wider_register_is_extended_by_sign(lanewise: Callable[..., Any]) -> None:
    a = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x1234], np.uint32)
    body = "cvt.s8.u32 %t1, %a; mov.b32 %x, %t1; cvt.u8.u32 %t2, %a; mov.b32 %y, %t2;"
    signed, unsigned = lanewise(body, ["u32", "u32"], [("u32", a)])
    assert signed.view(np.int32).tolist() == [0, 1, 127, -128, -1, 0x34]
    assert unsigned.tolist() == [0, 1, 127, 128, 255, 0x34]


@pytest.mark.instruction("cvt")
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("source", ["u8", "s16", "s32", "u32", "s64", "u64"])
def test_integers_to_floats(
    source: str,
    target: str,
    mode: str,
    lanewise: Callable[..., Any],
    rounded: Callable[..., float],
    rng: np.random.Generator,
) -> None:
    a = integers(source, rng)
    found = lanewise(f"cvt.{mode}.{target}.{source} %x, %a;", [target], [(source, a.view(f"u{a.itemsize}"))])
    for x, got in zip(a, found.view(dtype_of(target)), strict=True):
        assert float(got) == rounded(Fraction(int(x)), target, mode)


def floats(kind: str, rng: np.random.Generator) -> np.ndarray:
    scale = np.exp2(rng.integers(-20, 70 if kind in {"f32", "f64"} else 12, 400).astype(np.float64))
    drawn = rng.standard_normal(400) * scale
    halves = rng.integers(-40, 40, 60) + 0.5
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        127.5,
        128.0,
        -128.5,
        255.5,
        32767.5,
        2.0**31,
        -(2.0**31),
        2.0**63,
        1e-3,
    ]
    with np.errstate(over="ignore"):
        return np.concatenate((drawn, halves, special)).astype(DTYPES[kind])


@pytest.mark.instruction("cvt")
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_floats_to_integers_clamp(
    source: str, target: str, mode: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = floats(source, rng)
    found = lanewise(f"cvt.{mode}.{target}.{source} %x, %a;", [target], [(source, a.view(f"u{a.itemsize}"))])
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    to_integer = {"rni": round, "rzi": lambda v: int(v), "rmi": floor, "rpi": ceil}[mode]
    for x, got in zip(a.astype(np.float64), found, strict=True):
        if np.isnan(x):
            want = 2 ** (bits - 1) if source == "f64" or bits == 64 else 0
        elif np.isinf(x):
            want = high if x > 0 else low
        else:
            want = min(max(to_integer(Fraction(float(x))), low), high)
        assert int(got) == want & (2**bits - 1), (float(x), mode)


@pytest.mark.instruction("cvt")
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("source", "target"), [("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f64", "bf16")]
)
def test_floats_to_narrower_floats(
    source: str,
    target: str,
    mode: str,
    lanewise: Callable[..., Any],
    rounded: Callable[..., float],
    rng: np.random.Generator,
) -> None:
    if target == "f16" and mode in {"rm", "rp"} and source == "f64":
        mode = "rz"
    size = dtype_of(source).itemsize
    wild = rng.integers(0, 2**63, 1500, dtype=np.uint64) >> np.uint64(63 - 8 * size if size < 8 else 0)
    a = np.concatenate((floats(source, rng), wild.astype(f"u{size}").view(dtype_of(source))))
    # Ties of the narrow format and their neighbours, where rounding twice goes wrong.
    ties = np.array(
        [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-9, 1 + 2.0**-24 + 2.0**-50, 65520.0, 2.0**-25], np.float64
    )
    a = np.concatenate((a, ties.astype(dtype_of(source)), -ties.astype(dtype_of(source))))
    found = lanewise(f"cvt.{mode}.{target}.{source} %x, %a;", [target], [(source, a.view(f"u{size}"))]).view(
        dtype_of(target)
    )
    for x, got in zip(a, found, strict=True):
        if np.isnan(x):
            assert np.isnan(float(got))
        elif np.isinf(x):
            assert float(got) == x
        else:
            assert float(got) == rounded(Fraction(float(x)), target, mode), (float(x).hex(), mode)


@pytest.mark.instruction("cvt")
@pytest.mark.parametrize(("source", "target"), [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("f32", "f64")])
def test_widening_is_exact(source: str, target: str, lanewise: Callable[..., Any]) -> None:
    bits = (
        np.arange(65536, dtype=np.uint16)
        if source != "f32"
        else np.arange(0, 2**32, 40503, dtype=np.uint64).astype(np.uint32)
    )
    found = lanewise(f"cvt.{target}.{source} %x, %a;", [target], [(source, bits)]).view(dtype_of(target))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(found.astype(np.float64), bits.view(dtype_of(source)).astype(np.float64), equal_nan=True)


def test_two_floats_into_a_pair_the_first_in_the_upper_half(
    lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    for kind in ("f16", "bf16"):
        pair = lanewise(f"cvt.rn.{kind}x2.f32 %x, %a, %b;", [f"{kind}x2"], [("f32", a), ("f32", b)])
        halves = pair.view(DTYPES[kind]).reshape(-1, 2)
        assert np.array_equal(halves[:, 0], b.astype(DTYPES[kind]))
        assert np.array_equal(halves[:, 1], a.astype(DTYPES[kind]))


def test_rounding_to_integral_floats_and_saturation(lanewise: Callable[..., Any]) -> None:
    a = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 0.3, 7.0, np.nan], np.float32)
    for mode, exact in {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.items():
        found = lanewise(f"cvt.{mode}.f32.f32 %x, %a;", ["f32"], [("f32", a)]).view(np.float32)
        assert np.array_equal(found, exact(a), equal_nan=True)
    found = lanewise("cvt.sat.f32.f32 %x, %a;", ["f32"], [("f32", a)]).view(np.float32)
    assert found.tolist() == [0.0, 0.0, 0.5, 1.0, 1.0, np.float32(0.3), 1.0, 0.0]


@pytest.mark.instruction("cvt")
def test_tensor_float_keeps_ten_bits(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = np.concatenate((rng.standard_normal(500), [1 + 2.0**-11, 1 + 3 * 2.0**-11])).astype(np.float32)
    found = lanewise("cvt.rna.tf32.f32 %x, %a;", ["b32"], [("f32", a)]).view(np.float32)
    for x, got in zip(a, found, strict=True):
        exact = Fraction(float(x))
        unit = Fraction(2) ** (int(np.floor(np.log2(abs(float(x))))) - 10)
        want = (floor(abs(exact) / unit + Fraction(1, 2)) * unit) * (1 if x > 0 else -1)
        assert Fraction(float(got)) == want
