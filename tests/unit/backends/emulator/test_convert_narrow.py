"""Conversions from and to the formats of eight and sixteen bits and tf32, with their saturation and rectification."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
pytestmark = [pytest.mark.instruction("cvt"), pytest.mark.filterwarnings("ignore:invalid value encountered in cast")]

FP8 = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}
"""Bits of exponent and of mantissa, and the bias (Micikevicius et al., "FP8 formats for deep learning", 2022)."""


def value_of(byte: int, kind: str) -> Fraction | float:
    """Returns the value of a byte by the format's definition."""
    exponent_bits, mantissa_bits, bias = FP8[kind]
    sign = -1 if byte & 128 else 1
    exponent, mantissa = byte >> mantissa_bits & (1 << exponent_bits) - 1, byte & (1 << mantissa_bits) - 1
    if kind == "e4m3" and byte & 127 == 127:
        return float("nan")
    if kind == "e5m2" and exponent == 31:
        return float("nan") if mantissa else sign * float("inf")
    whole = Fraction(mantissa, 1 << mantissa_bits) + (1 if exponent else 0)
    return sign * whole * Fraction(2) ** (max(exponent, 1) - bias)


def finite(kind: str) -> list[tuple[Fraction, int]]:
    """Every positive finite value with its byte, ascending."""
    found = [(value_of(byte, kind), byte) for byte in range(128)]
    return sorted((value, byte) for value, byte in found if isinstance(value, Fraction))


def nearest(x: float, kind: str, table: list[tuple[Fraction, int]]) -> int | None:
    """The byte that `.rn.satfinite` gives; None for any NaN."""
    if np.isnan(x):
        return None
    sign = 128 if np.signbit(x) else 0
    if np.isinf(x) or abs(Fraction(x)) > table[-1][0]:
        return sign | table[-1][1]
    best = min(table, key=lambda entry: (abs(entry[0] - abs(Fraction(x))), entry[1] & 1))
    return sign | best[1]


def inputs(rng: np.random.Generator, table: list[tuple[Fraction, int]]) -> np.ndarray:
    """Float32 all over the range: every value, every tie with its neighbours, and what is special."""
    values = np.array([float(value) for value, _ in table], np.float32)
    ties = (values[1:] + values[:-1]) / 2
    near = np.concatenate((ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))))
    beyond = np.array([448.1, 464.0, 480.0, 57345.0, 61440.0, 1e9, np.inf, np.nan, 1e-9, 0.0], np.float32)
    wild = (rng.standard_normal(60) * np.exp2(rng.integers(-20, 18, 60))).astype(np.float32)
    found = np.concatenate((values, near, beyond, wild))
    return np.concatenate((found, -found))


def assert_bytes(found: Iterable[int], wanted: Iterable[int | None], kind: str) -> None:
    for got, want in zip(found, wanted, strict=True):
        if want is None:
            assert np.isnan(float(value_of(int(got), kind)))
        else:
            assert int(got) == want


def rectify(x: float) -> float:
    return x if np.isnan(x) or x > 0 else 0.0


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", sorted(FP8))
def test_two_floats_to_eight_bits_the_first_in_the_upper_half(
    kind: str, relu: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    table = finite(kind)
    a = inputs(rng, table)
    b = rng.permutation(a)
    found = lanewise(f"cvt.rn.satfinite{relu}.{kind}x2.f32 %x, %a, %b;", ["b16"], [("f32", a), ("f32", b)])
    change = rectify if relu else float
    assert_bytes(found >> 8, (nearest(change(float(x)), kind, table) for x in a), kind)
    assert_bytes(found & 255, (nearest(change(float(x)), kind, table) for x in b), kind)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", sorted(FP8))
def test_a_pair_of_halves_to_eight_bits(
    kind: str, relu: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    table = finite(kind)
    with np.errstate(over="ignore"):
        halves = inputs(rng, table).astype(np.float16)
    halves = np.concatenate((halves, halves[::-1]))
    pairs = halves.view(np.uint32)
    found = lanewise(f"cvt.rn.satfinite{relu}.{kind}x2.f16x2 %x, %a;", ["b16"], [("f16x2", pairs)])
    change = rectify if relu else float
    wanted = [nearest(change(float(x)), kind, table) for x in halves]
    assert_bytes(found & 255, wanted[0::2], kind)
    assert_bytes(found >> 8, wanted[1::2], kind)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", sorted(FP8))
def test_every_byte_to_a_half(kind: str, relu: str, lanewise: Callable[..., Any]) -> None:
    low = np.arange(256, dtype=np.uint16)
    packed = low | (low[::-1] << 8)
    found = lanewise(f"cvt.rn{relu}.f16x2.{kind}x2 %x, %a;", ["f16x2"], [("b16", packed)]).view(np.float16)
    change = rectify if relu else float
    for place, shift in ((0, 0), (1, 8)):
        for byte, got in zip(packed >> shift & 255, found[place::2], strict=True):
            want = change(float(value_of(int(byte), kind)))
            assert (np.isnan(want) and np.isnan(got)) or (
                float(got) == want and (want or not relu or not np.signbit(got))
            )


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    65504.0,
    65519.0,
    65520.0,
    -65520.0,
    3.39e38,
    -3.4e38,
    6e-8,
    -1e-8,
    1e-41,
]


def wide(rng: np.random.Generator) -> np.ndarray:
    drawn = rng.integers(0, 2**32, 300, dtype=np.uint64).astype(np.uint32).view(np.float32)
    tame = (rng.standard_normal(200) * np.exp2(rng.integers(-26, 18, 200))).astype(np.float32)
    return np.concatenate((drawn, tame, np.array(SPECIAL, np.float32)))


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("qualifiers", ["", ".relu", ".satfinite", ".relu.satfinite"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_to_sixteen_bits_rectified_or_kept_finite(
    kind: str, qualifiers: str, mode: str,
    lanewise: Callable[..., Any], rounded: Callable[..., float], rng: np.random.Generator,
) -> None:  # fmt: skip
    a = wide(rng)
    b = rng.permutation(a)
    single = lanewise(f"cvt.{mode}{qualifiers}.{kind}.f32 %x, %a;", [kind], [("f32", a)]).view(DTYPES[kind])
    pair = lanewise(f"cvt.{mode}{qualifiers}.{kind}x2.f32 %x, %a, %b;", [f"{kind}x2"], [("f32", a), ("f32", b)])
    high, low = ((pair >> shift).astype(np.uint16).view(DTYPES[kind]) for shift in (16, 0))
    largest = float(ml_dtypes.finfo(DTYPES[kind]).max)
    for values, found in ((a, single), (a, high), (b, low)):
        for x, got in zip(values.astype(np.float64), found.astype(np.float64), strict=True):
            if np.isnan(x):
                assert np.isnan(got)
                continue
            want = float(x) if np.isinf(x) else rounded(Fraction(float(x)), kind, mode)
            if "relu" in qualifiers:
                want = max(want, 0.0)
                assert not np.signbit(got)
            if "satfinite" in qualifiers:
                want = min(max(want, -largest), largest)
            assert got == want, (float(x).hex(), mode)


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
@pytest.mark.parametrize("qualifiers", ["", ".relu", ".satfinite"])
def test_to_tensor_float(mode: str, qualifiers: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    largest = float((2 - Fraction(1, 1024)) * Fraction(2) ** 127)
    ties = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-149, 5 * 2.0**-138, 3.4028e38], np.float32)
    a = np.concatenate((wide(rng), ties, -ties))
    found = lanewise(f"cvt.{mode}{qualifiers}.tf32.f32 %x, %a;", ["b32"], [("f32", a)]).view(np.float32)
    for x, got in zip(a.astype(np.float64), found.astype(np.float64), strict=True):
        if np.isnan(x):
            assert np.isnan(got)
            continue
        want = float(x)
        if np.isfinite(x) and x:
            unit = Fraction(2) ** (max(int(np.frexp(x)[1]) - 1, -126) - 10)
            whole, rest = divmod(abs(Fraction(x)) / unit, 1)
            up = {"rna": rest >= Fraction(1, 2), "rz": False}.get(
                mode, rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
            )
            exact = (whole + up) * unit
            size = float(exact) if exact < 2**128 else float("inf")
            want = size if x > 0 else -size
        if "relu" in qualifiers:
            want = max(want, 0.0)
        if "satfinite" in qualifiers:
            want = min(max(want, -largest), largest)
        assert got == want, (float(x).hex(), mode)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("source", "target"), [("f16", "bf16"), ("bf16", "f16")])
def test_between_the_two_formats_of_sixteen_bits(
    source: str, target: str, mode: str, lanewise: Callable[..., Any], rounded: Callable[..., float]
) -> None:
    bits = np.arange(0, 65536, 41, dtype=np.uint32).astype(np.uint16)
    found = lanewise(f"cvt.{mode}.{target}.{source} %x, %a;", [target], [(source, bits)]).view(DTYPES[target])
    with np.errstate(invalid="ignore"):
        values, results = bits.view(DTYPES[source]).astype(np.float64), found.astype(np.float64)
    for x, got in zip(values, results, strict=True):
        if not np.isfinite(x):
            assert np.isnan(got) if np.isnan(x) else got == x
        else:
            assert got == rounded(Fraction(float(x)), target, mode)


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("target", ["s8", "u16", "s32", "u32", "s64", "u64"])
def test_bfloat16_to_integers(target: str, mode: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    with np.errstate(over="ignore"):
        a = np.concatenate((rng.standard_normal(300) * np.exp2(rng.integers(-4, 70, 300)), np.array(SPECIAL))).astype(
            ml_dtypes.bfloat16
        )
    found = lanewise(f"cvt.{mode}.{target}.bf16 %x, %a;", [target], [("bf16", a.view(np.uint16))])
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    exact = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    for x, got in zip(a.astype(np.float64), found, strict=True):
        if np.isnan(x):
            want = 2 ** (bits - 1) if bits == 64 else 0
        else:
            want = (high if x > 0 else low) if np.isinf(x) else min(max(int(exact(x)), low), high)
        assert int(got) == want & (2**bits - 1), float(x)
