"""Floating-point arithmetic against rational numbers rounded once."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
MODES = ["rn", "rz", "rm", "rp"]


def bits_to_float(bits: np.ndarray, kind: str) -> np.ndarray:
    return bits.view(DTYPES[kind])


def values(kind: str, rng: np.random.Generator, count: int = 400) -> np.ndarray:
    """Finite values with exponents all over the range, subnormals and near-ties included."""
    dtype = DTYPES[kind]
    size = dtype.itemsize
    drawn = rng.integers(0, 2**63, count, dtype=np.uint64) << np.uint64(1) | rng.integers(0, 2, count, dtype=np.uint64)
    wild = (drawn >> np.uint64(64 - 8 * size)).astype(f"u{size}").view(dtype)
    tame = (rng.standard_normal(count) * 4).astype(dtype)
    result = np.where(rng.random(count) < 0.5, wild, tame)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(result.astype(np.float64))
    result = np.where(finite, result, dtype.type(1.5)).astype(dtype)
    result[:6] = np.array([0.0, -0.0, 1.0, -1.0, 3.0, 0.1]).astype(dtype)
    return result


def same(got: float, want: float) -> bool:
    return bool(got == want or (np.isnan(got) and np.isnan(want)))


@pytest.mark.instruction("add", "sub", "mul", "div")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_basic_operations_in_every_direction(
    name: str,
    kind: str,
    mode: str,
    lanewise: Callable[..., Any],
    rounded: Callable[..., float],
    rng: np.random.Generator,
) -> None:
    a, b = values(kind, rng), values(kind, rng)
    near = rng.random(len(a)) < 0.3
    b[near] = (a[near] * (1 + rng.standard_normal(int(near.sum())) * 1e-5)).astype(DTYPES[kind])
    b[~np.isfinite(b)] = 2.0
    found = bits_to_float(lanewise(f"{name}.{mode}.{kind} %x, %a, %b;", [kind], [(kind, a), (kind, b)]), kind)
    exact = {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    }[name]  # fmt: skip
    for x, y, got in zip(a, b, found, strict=True):
        if name == "div" and y == 0:
            continue
        want = rounded(exact(Fraction(float(x)), Fraction(float(y))), kind, mode)
        assert float(got) == want, (float(x).hex(), float(y).hex(), float(got).hex(), want.hex())


def hard_products(kind: str, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triples whose exact a * b + c lies close to a tie, cancels, or falls into the subnormals."""
    dtype = DTYPES[kind]
    a, b = values(kind, rng, count), values(kind, rng, count)
    with np.errstate(all="ignore"):
        product = (a.astype(np.float64) * b.astype(np.float64)).astype(np.float64)
        shift = np.exp2(rng.integers(-60, 60, count).astype(np.float64))
        choices = np.stack((
            values(kind, rng, count).astype(np.float64), -product, product * shift, -product * (1 + 2.0**-20),
            product * 2.0 ** (-24 if kind == "f32" else -53), np.zeros(count),
        ))  # fmt: skip
        c = choices[rng.integers(0, len(choices), count), np.arange(count)].astype(dtype)
    c[~np.isfinite(c.astype(np.float64))] = dtype.type(1)
    return a, b, c


@pytest.mark.instruction("fma")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_multiply_add_rounds_once(
    kind: str, mode: str, lanewise: Callable[..., Any], rounded: Callable[..., float], rng: np.random.Generator
) -> None:
    a, b, c = hard_products(kind, rng, 3000)
    found = bits_to_float(
        lanewise(f"fma.{mode}.{kind} %x, %a, %b, %c;", [kind], [(kind, a), (kind, b), (kind, c)]), kind
    )
    for x, y, z, got in zip(a, b, c, found, strict=True):
        want = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), kind, mode)
        assert float(got) == want, (float(x).hex(), float(y).hex(), float(z).hex(), float(got).hex(), want.hex())


@pytest.mark.parametrize("mode", ["rm", "rp"])
def test_products_much_smaller_than_the_addend_round_to_the_right_side(
    mode: str, lanewise: Callable[..., Any], rounded: Callable[..., float], rng: np.random.Generator
) -> None:
    """As `expf` adds to a large number to cut off; with products down to nothing, and results at either end of the range."""
    count = 3000
    c = np.ldexp(rng.integers(1 << 23, 1 << 24, count), rng.integers(-149, 105, count)).astype(np.float32)
    c[: count // 3] = np.float32(12582913.0)
    a = np.ldexp(rng.uniform(-1, 1, count), rng.integers(-140, 60, count)).astype(np.float32)
    b = np.where(rng.random(count) < 0.5, c / 8, rng.uniform(-300, 300, count)).astype(np.float32)
    a[::7], b[::11] = 0, -c[::11]
    c[::5] *= -1
    found = bits_to_float(
        lanewise(f"fma.{mode}.f32 %x, %a, %b, %c;", ["f32"], [("f32", a), ("f32", b), ("f32", c)]), "f32"
    )
    for x, y, z, got in zip(a, b, c, found, strict=True):
        want = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), "f32", mode)
        assert float(got) == want, (float(x).hex(), float(y).hex(), float(z).hex(), float(got).hex(), want.hex())


@pytest.mark.instruction("add", "sub", "mul", "fma")
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrow_formats_round_once(
    kind: str, lanewise: Callable[..., Any], rounded: Callable[..., float], rng: np.random.Generator
) -> None:
    a, b, c = hard_products(kind, rng, 2000)
    sources = [(kind, a.view(np.uint16)), (kind, b.view(np.uint16)), (kind, c.view(np.uint16))]
    fused = bits_to_float(lanewise(f"fma.rn.{kind} %x, %a, %b, %c;", [kind], sources), kind)
    for name, exact in {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}.items():
        found = bits_to_float(lanewise(f"{name}.rn.{kind} %x, %a, %b;", [kind], sources[:2]), kind)
        for x, y, got in zip(a, b, found, strict=True):
            assert float(got) == rounded(exact(Fraction(float(x)), Fraction(float(y))), kind)
    for x, y, z, got in zip(a, b, c, fused, strict=True):
        assert float(got) == rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), kind)


def test_pairs_of_halves_are_computed_by_themselves(lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    for kind in ("f16", "bf16"):
        raw = [values(kind, rng, 600).view(np.uint16) for _ in range(3)]
        pairs = [part.view(np.uint32) for part in raw]
        single = lanewise(f"fma.rn.{kind} %x, %a, %b, %c;", [kind], [(kind, part) for part in raw])
        double = lanewise(f"fma.rn.{kind}x2 %x, %a, %b, %c;", [f"{kind}x2"], [(f"{kind}x2", pair) for pair in pairs])
        one, two = bits_to_float(single, kind).astype(float), bits_to_float(double.view(np.uint16), kind).astype(float)
        assert np.array_equal(one, two, equal_nan=True)


@pytest.mark.instruction("sqrt", "rcp")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_roots_and_reciprocals(
    kind: str, mode: str, lanewise: Callable[..., Any], rounded: Callable[..., float], rng: np.random.Generator
) -> None:
    a = np.abs(values(kind, rng))
    a[a == 0] = 2
    root, inverse = lanewise(f"sqrt.{mode}.{kind} %x, %a; rcp.{mode}.{kind} %y, %a;", [kind, kind], [(kind, a)])
    for x, got, turned in zip(a, bits_to_float(root, kind), bits_to_float(inverse, kind), strict=True):
        exact = Fraction(float(x))
        scale = 4**700
        low = Fraction(isqrt(int(exact * scale * scale)), scale)
        # Between two neighbours of 1400 bits, unless exact, no rounding boundary can lie.
        nearly = low if low * low == exact else low + Fraction(1, 2 * scale)
        assert float(got) == rounded(nearly, kind, mode)
        assert float(turned) == rounded(1 / exact, kind, mode)


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40]


@pytest.mark.instruction("min", "max")
def test_minimum_and_maximum_of_special_values(lanewise: Callable[..., Any]) -> None:
    a, b = (part.ravel().astype(np.float32) for part in np.meshgrid(SPECIAL, SPECIAL))
    sources = [("f32", a), ("f32", b)]
    low, high = (
        bits.view(np.float32) for bits in lanewise("min.f32 %x, %a, %b; max.f32 %y, %a, %b;", ["f32", "f32"], sources)
    )
    low_nan, high_nan = (
        bits.view(np.float32)
        for bits in lanewise("min.NaN.f32 %x, %a, %b; max.NaN.f32 %y, %a, %b;", ["f32", "f32"], sources)
    )
    for x, y, small, large, small_nan, large_nan in zip(a, b, low, high, low_nan, high_nan, strict=True):
        if np.isnan(x) or np.isnan(y):
            other = y if np.isnan(x) else x
            assert same(small, other)
            assert same(large, other)
            assert np.isnan(small_nan)
            assert np.isnan(large_nan)
            continue
        order = sorted((x, y), key=lambda value: (value, not np.signbit(value)))
        for got, want in ((small, order[0]), (large, order[1]), (small_nan, order[0]), (large_nan, order[1])):
            assert got == want
            assert np.signbit(got) == np.signbit(want)


def test_flushing_subnormals(lanewise: Callable[..., Any]) -> None:
    a = np.array([1e-40, -1e-40, 1e-38, 2.0**-126, 1.0], np.float32)
    b = np.array([0.0, 0.0, -0.9e-38, 0.0, 1e-40], np.float32)
    kept, flushed = lanewise("add.f32 %x, %a, %b; add.ftz.f32 %y, %a, %b;", ["f32", "f32"], [("f32", a), ("f32", b)])
    assert np.array_equal(kept.view(np.float32), a + b)
    got = flushed.view(np.float32)
    assert got.tolist() == [0.0, 0.0, np.float32(1e-38) * 0, np.float32(2.0**-126), 1.0]


def test_saturation_to_the_unit_interval(lanewise: Callable[..., Any]) -> None:
    a = np.array([-1.0, 0.25, 2.0, np.nan, -np.inf, np.inf, -0.0], np.float32)
    b = np.zeros_like(a)
    found = lanewise("add.sat.f32 %x, %a, %b;", ["f32"], [("f32", a), ("f32", b)]).view(np.float32)
    assert found.tolist() == [0.0, 0.25, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert not np.signbit(found).any()


@pytest.mark.instruction("abs", "neg", "copysign")
def test_signs(lanewise: Callable[..., Any]) -> None:
    a = np.array([1.5, -0.0, np.inf, -2.0, 0.0], np.float32)
    b = np.array([-1.0, 3.0, -0.0, 5.0, -7.0], np.float32)
    positive, negative = lanewise("abs.f32 %x, %a; neg.f32 %y, %a;", ["f32", "f32"], [("f32", a)])
    assert np.array_equal(positive.view(np.float32), np.abs(a))
    assert np.array_equal(negative, (-a).view(np.uint32))
    moved = lanewise("copysign.f32 %x, %a, %b;", ["f32"], [("f32", a), ("f32", b)])
    assert np.array_equal(moved, np.copysign(b, a).view(np.uint32))
    for kind in ("f16", "bf16"):
        half = a.astype(DTYPES[kind])
        positive, negative = lanewise(
            f"abs.{kind} %x, %a; neg.{kind} %y, %a;", [kind, kind], [(kind, half.view(np.uint16))]
        )
        assert np.array_equal(positive, half.view(np.uint16) & 0x7FFF)
        assert np.array_equal(negative, half.view(np.uint16) ^ 0x8000)


@pytest.mark.instruction("ex2", "lg2", "sin", "cos", "rsqrt")
@pytest.mark.parametrize(
    ("instruction", "exact", "domain", "error"),
    [
        ("ex2.approx.ftz.f32", np.exp2, (-120, 120), 0),
        ("lg2.approx.f32", np.log2, (1e-30, 1e30), 2.0**-22),
        ("sin.approx.f32", np.sin, (-3, 3), 2.0**-20.5),
        ("cos.approx.f32", np.cos, (-3, 3), 2.0**-20.5),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), (1e-30, 1e30), 0),
    ],
)
def test_approximate_functions_are_as_good_as_their_format_or_the_isa_s_absolute_error(
    instruction: str,
    exact: Callable[[np.ndarray], np.ndarray],
    domain: tuple[float, float],
    error: float,
    lanewise: Callable[..., Any],
    rng: np.random.Generator,
) -> None:
    low, high = domain
    a = (np.exp(rng.uniform(np.log(low), np.log(high), 500)) if low > 0 else rng.uniform(low, high, 500)).astype(
        np.float32
    )
    found = lanewise(f"{instruction} %x, %a;", ["f32"], [("f32", a)]).view(np.float32)
    want = exact(a.astype(np.float64))
    assert np.all(np.abs(found - want) <= 2.0**-23 * np.abs(want) + error)


@pytest.mark.instruction("testp")
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_classes_of_values(kind: str, lanewise: Callable[..., Any]) -> None:
    smallest = 2.0**-126 if kind == "f32" else 2.0**-1022
    a = np.array([0.0, -0.0, 1.0, smallest / 4, -smallest / 4, smallest, np.inf, -np.inf, np.nan, 3e38], DTYPES[kind])
    for test, want in {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a), "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & (np.abs(a) >= smallest), "subnormal": (a != 0) & (np.abs(a) < smallest),
    }.items():  # fmt: skip
        found = lanewise(f"testp.{test}.{kind} %p1, %a; selp.u32 %x, 1, 0, %p1;", ["u32"], [(kind, a)])
        assert np.array_equal(found.astype(bool), want)
