"""The functions of the special-function unit: within the error that the PTX ISA states, and right where it says exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

f32 = np.float32
inf, nan = np.inf, np.nan
TINY = 2.0**-130
"""Subnormal in f32."""


def run(lanewise: Callable[..., Any], instruction: str, *sources: np.ndarray) -> np.ndarray:
    names = ", ".join(f"%{letter}" for letter in "abc"[: len(sources)])
    found = lanewise(f"{instruction} %x, {names};", ["f32"], [("f32", source) for source in sources])
    return found.view(f32)


def assert_bits(found: np.ndarray, wanted: list[float]) -> None:
    """The same values, zeros by their sign, NaN as NaN."""
    want = np.array(wanted, found.dtype)
    assert np.array_equal(found, want, equal_nan=True), (found, want)
    assert np.array_equal(np.signbit(found[want == 0]), np.signbit(want[want == 0]))


TABLES: dict[str, tuple[list[float], list[float]]] = {
    "rcp.approx.f32": ([-inf, -0.0, 0.0, inf, nan, 2.0, TINY / 2**10], [-0.0, -inf, inf, 0.0, nan, 0.5, inf]),
    "rcp.approx.ftz.f32": ([-inf, -TINY, TINY, inf, nan], [-0.0, -inf, inf, 0.0, nan]),
    "sqrt.approx.f32": ([-inf, -1.0, -0.0, 0.0, inf, nan, 4.0], [nan, nan, -0.0, 0.0, inf, nan, 2.0]),
    "sqrt.approx.ftz.f32": ([-TINY, TINY, inf], [-0.0, 0.0, inf]),
    "rsqrt.approx.f32": ([-inf, -1.0, -0.0, 0.0, inf, nan, 0.25], [nan, nan, -inf, inf, 0.0, nan, 2.0]),
    "rsqrt.approx.ftz.f32": ([-TINY, TINY], [-inf, inf]),
    "sin.approx.f32": ([-inf, -0.0, 0.0, inf, nan], [nan, -0.0, 0.0, nan, nan]),
    "sin.approx.ftz.f32": ([-TINY, TINY], [-0.0, 0.0]),
    "cos.approx.f32": ([-inf, -0.0, 0.0, inf, nan], [nan, 1.0, 1.0, nan, nan]),
    "lg2.approx.f32": ([-inf, -1.0, -0.0, 0.0, inf, nan, 8.0, TINY], [nan, nan, -inf, -inf, inf, nan, 3.0, -130.0]),
    "lg2.approx.ftz.f32": ([-TINY, TINY], [-inf, -inf]),
    "ex2.approx.f32": ([-inf, -0.0, 0.0, inf, nan, 3.0, -130.0], [0.0, 1.0, 1.0, inf, nan, 8.0, TINY]),
    "ex2.approx.ftz.f32": ([-inf, TINY, -TINY, -130.0, inf], [0.0, 1.0, 1.0, 0.0, inf]),
    "tanh.approx.f32": ([-inf, -0.0, 0.0, inf, nan], [-1.0, -0.0, 0.0, 1.0, nan]),
}  # fmt: skip
"""PTX ISA, each instruction's table of special inputs."""


@pytest.mark.instruction("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
@pytest.mark.parametrize("instruction", sorted(TABLES))
def test_special_inputs_give_what_the_isa_tabulates(instruction: str, lanewise: Callable[..., Any]) -> None:
    inputs, wanted = TABLES[instruction]
    assert_bits(run(lanewise, instruction, np.array(inputs, f32)), wanted)


BOUNDS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, Callable[[np.ndarray], Any]]] = {
    "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-100, 2.0**100, lambda want: 2.0**-23 * np.abs(want)),
    "sqrt.approx.f32": (np.sqrt, 2.0**-100, 2.0**100, lambda want: 2.0**-23 * np.abs(want)),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2.0**-100, 2.0**100, lambda want: 2.0**-22.9 * np.abs(want)),
    "lg2.approx.f32": (np.log2, 2.0**-100, 2.0**100, lambda want: np.maximum(2.0**-22, 2.0**-22 * np.abs(want))),
    "ex2.approx.f32": (np.exp2, 2.0**-20, 100.0, lambda want: 2.0**-22 * np.abs(want)),
    "sin.approx.f32": (np.sin, 2.0**-20, np.pi, lambda want: 2.0**-20.5),
    "cos.approx.f32": (np.cos, 2.0**-20, np.pi, lambda want: 2.0**-20.5),
    "tanh.approx.f32": (np.tanh, 2.0**-20, 20.0, lambda want: 2.0**-11 * np.abs(want)),
}
"""Exact function, range of magnitudes, and the largest error that the PTX ISA allows."""


@pytest.mark.instruction("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
@pytest.mark.parametrize("instruction", sorted(BOUNDS))
def test_errors_stay_within_what_the_isa_states(
    instruction: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    exact, low, high, bound = BOUNDS[instruction]
    a = np.exp(rng.uniform(np.log(low), np.log(high), 2000)).astype(f32)
    if not instruction.startswith(("sqrt", "rsqrt", "lg2")):
        a *= rng.choice(np.array([-1, 1], f32), len(a))
    want = exact(a.astype(np.float64))
    found = run(lanewise, instruction, a).astype(np.float64)
    assert np.all(np.abs(found - want) <= bound(want))
    if instruction == "tanh.approx.f32":  # no better than hardware, since its error exceeds derived tolerances
        assert np.max(np.abs(found - want) / np.abs(want)) > 0.9 * 2.0**-11


@pytest.mark.instruction("sin", "cos")
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_the_error_of_sine_and_cosine_grows_with_the_angle(
    name: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    """PTX ISA, sin and cos: 2^-20.5 within 2 pi, 2^-14.7 within 100 pi; beyond, the angle is still rounded to turns in float32."""
    exact: Any = {"sin": np.sin, "cos": np.cos}[name]
    bounds = (
        (2 * np.pi, 0.7 * 2.0**-20.5, 2.0**-20.5),
        (100 * np.pi, 0.8 * 2.0**-14.7, 2.0**-14.7),
        (1e4, 3e-4, 1.2e-3),
        (1e7, 0.3, 2.0),
    )
    for largest, least, most in bounds:
        a = rng.uniform(-largest, largest, 20000).astype(f32)
        found = run(lanewise, f"{name}.approx.f32", a).astype(np.float64)
        error = np.max(np.abs(found - exact(a.astype(np.float64))))
        assert least < error <= most


@pytest.mark.instruction("lg2")
def test_the_logarithm_near_one_has_the_absolute_error_of_the_isa(
    lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = rng.uniform(0.999, 1.001, 2000).astype(f32)
    error = np.abs(run(lanewise, "lg2.approx.f32", a).astype(np.float64) - np.log2(a.astype(np.float64)))
    assert 0.9 * 2.0**-22 < np.max(error) <= 2.0**-22
    assert_bits(run(lanewise, "lg2.approx.f32", np.array([1.0, 0.5, 2.0], f32)), [0.0, -1.0, 1.0])


@pytest.mark.instruction("ex2", "tanh")
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_narrow_forms_alone_and_in_pairs(
    name: str, kind: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    dtype: Any = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    a = np.concatenate((rng.uniform(-8, 8, 500), [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 2.0])).astype(dtype)
    ftz = ".ftz" if (name, kind) == ("ex2", "bf16") else ""
    single = lanewise(f"{name}.approx{ftz}.{kind} %x, %a;", [kind], [(kind, a.view(np.uint16))])
    double = lanewise(f"{name}.approx{ftz}.{kind}x2 %x, %a;", [f"{kind}x2"], [(f"{kind}x2", a.view(np.uint32))])
    assert np.array_equal(single, double.view(np.uint16))
    exact = {"ex2": np.exp2, "tanh": np.tanh}[name]
    with np.errstate(invalid="ignore"):
        want, found = exact(a.astype(np.float64)), single.view(dtype).astype(np.float64)
    # ISA: ex2 2**-9.9 (f16) and 2**-7 (bf16) relative; tanh 2**-10.987 absolute (f16) and 2**-8 (bf16).
    bound = {"f16": 2.0**-9.9, "bf16": 2.0**-7}[kind] * np.maximum(np.abs(want), 2.0**-14)
    finite = np.isfinite(want)
    assert np.all(np.abs(found[finite] - want[finite]) <= bound[finite])
    assert np.array_equal(found[~finite], want[~finite], equal_nan=True)


def upper(value: np.ndarray) -> np.ndarray:
    return (value.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


@pytest.mark.instruction("rcp", "rsqrt")
@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_double_forms_use_the_upper_half_alone(
    name: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    a = np.exp2(rng.uniform(-900, 900, 500)) * (1 + rng.random(500))
    noise = (a.view(np.uint64) | rng.integers(0, 2**32, 500, dtype=np.uint64)).view(np.float64)
    instruction = f"{name}.approx.ftz.f64 %x, %a;"
    found = lanewise(instruction, ["f64"], [("f64", a)])
    assert not (found & np.uint64(0xFFFFFFFF)).any()
    assert np.array_equal(found, lanewise(instruction, ["f64"], [("f64", noise)]))
    exact = {"rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x)}[name](upper(a))
    assert np.all(np.abs(found.view(np.float64) - exact) <= 2.0**-20 * np.abs(exact))
    special = np.array([0.0, -0.0, inf, 2.0**-1030, nan])
    edge = lanewise(instruction, ["f64"], [("f64", special)]).view(np.float64)
    assert_bits(edge, [inf, -inf, 0.0, inf, nan])


@pytest.mark.instruction("div")
@pytest.mark.parametrize("form", ["approx", "approx.ftz", "full", "full.ftz"])
def test_approximate_quotients(form: str, lanewise: Callable[..., Any], rng: np.random.Generator) -> None:
    a = (rng.standard_normal(1000) * np.exp2(rng.integers(-60, 60, 1000))).astype(f32)
    b = (rng.standard_normal(1000) * np.exp2(rng.integers(-60, 60, 1000))).astype(f32)
    want = a.astype(np.float64) / b
    found = run(lanewise, f"div.{form}.f32", a, b).astype(np.float64)
    inside = (np.abs(want) < 2.0**126) & (np.abs(want) > 2.0**-126)
    assert np.all(np.abs(found - want)[inside] <= 2 * 2.0**-23 * np.abs(want)[inside])
    edges = run(lanewise, f"div.{form}.f32", np.array([0, 1, -1, inf, inf], f32), np.array([0, 0, 0, inf, 2], f32))
    assert_bits(edges, [nan, inf, -inf, nan, inf])


@pytest.mark.instruction("div")
@pytest.mark.parametrize("form", ["approx", "approx.ftz"])
def test_an_approximate_quotient_by_a_huge_divisor_is_zero(form: str, lanewise: Callable[..., Any]) -> None:
    """PTX ISA, div.approx: zero where the divisor is beyond 2^126, NaN for an infinite dividend."""
    a = np.array([2.0**127, -(2.0**127), 2.0**127, inf, 2.0**126, nan], f32)
    b = np.array([2.0**127, 2.0**127, -(2.0**127), 2.0**127, 2.0**126, 2.0**127], f32)
    assert_bits(run(lanewise, f"div.{form}.f32", a, b), [0.0, -0.0, -0.0, nan, 1.0, nan])
    assert_bits(run(lanewise, "div.full.f32", a[:1], b[:1]), [1.0])


ARITHMETIC = {
    "add": lambda x, y, z: x + y, "sub": lambda x, y, z: x - y, "mul": lambda x, y, z: x * y, "fma": lambda x, y, z: x * y + z,
}  # fmt: skip


@pytest.mark.instruction("add", "sub", "mul", "fma")
@pytest.mark.parametrize("qualifiers", ["ftz", "sat", "ftz.sat"])
@pytest.mark.parametrize("name", sorted(ARITHMETIC))
def test_flushing_and_saturating_before_and_after_the_operation(
    name: str, qualifiers: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    pool = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 0.25, 3.0, inf, -inf, nan, TINY, -TINY, 2.0**-126, -(2.0**-126), 1.5 * 2.0**-126,
         2.0**-63, 2.0**-64, -(2.0**-70), 2.0**100], f32,
    )  # fmt: skip
    a, b, c = (pool[rng.integers(0, len(pool), 3000)] for _ in range(3))
    found = run(lanewise, f"{name}.rn.{qualifiers}.f32", *((a, b, c) if name == "fma" else (a, b)))

    def flush(value: np.ndarray) -> np.ndarray:
        small = np.abs(value) < 2.0**-126
        return np.where(small & ("ftz" in qualifiers), np.copysign(0.0, value), value)

    with np.errstate(all="ignore"):
        # These few values and their products fit float64, so that one rounding follows.
        want = ARITHMETIC[name](*(flush(value.astype(np.float64)) for value in (a, b, c)))
        want = flush(want.astype(f32).astype(np.float64))
    if "sat" in qualifiers:
        want = np.where(np.isnan(want), 0.0, np.clip(want, 0.0, 1.0)) + 0.0
    assert np.array_equal(found.astype(np.float64), want, equal_nan=True)
    assert np.array_equal(np.signbit(found[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.instruction("min", "max")
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_magnitudes_with_the_signs_xored_and_flushed_inputs(name: str, kind: str, lanewise: Callable[..., Any]) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, inf, -inf, nan]
    dtype: Any = {"f32": f32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    a, b = (part.ravel().astype(dtype) for part in np.meshgrid(values, values))
    sources = [(kind, part.view(f"u{part.itemsize}")) for part in (a, b)]
    found = lanewise(f"{name}.xorsign.abs.{kind} %x, %a, %b;", [kind], sources).view(dtype)
    with np.errstate(invalid="ignore"):
        x, y, got = (part.astype(np.float64) for part in (a, b, found))
    choose = np.fmin if name == "min" else np.fmax
    size = choose(np.abs(x), np.abs(y))
    want = np.where(np.signbit(x) ^ np.signbit(y), -size, size)
    assert np.array_equal(got, want, equal_nan=True)
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.instruction("fma", "add", "sub", "mul")
@pytest.mark.parametrize("kind", ["f16", "f16x2"])
def test_halves_saturated_flushed_or_rectified(
    kind: str, lanewise: Callable[..., Any], rng: np.random.Generator
) -> None:
    pool = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.0**-14, 2.0**-15, -(2.0**-15), 2.0**-7, 2.0**-8, inf, nan], np.float16
    )
    parts = [pool[rng.integers(0, len(pool), 1200)] for _ in range(3)]
    bits = [part.view(np.uint32 if kind == "f16x2" else np.uint16) for part in parts]
    sources = [(kind, part) for part in bits]
    a, b, c = (part.astype(np.float64) for part in parts)
    smallest = 2.0**-14

    def flush(value: np.ndarray) -> np.ndarray:
        return np.where(np.abs(value) < smallest, np.copysign(0.0, value), value)

    def clamp(value: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(value), 0.0, np.clip(value, 0.0, 1.0))

    def half(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float16).astype(np.float64)

    with np.errstate(all="ignore"):
        cases = {
            f"fma.rn.relu.{kind}": half(a * b + c) * (half(a * b + c) > 0),
            f"fma.rn.sat.{kind}": clamp(half(a * b + c)),
            f"fma.rn.ftz.{kind}": flush(half(flush(a) * flush(b) + flush(c))),
            f"add.sat.{kind}": clamp(half(a + b)), f"mul.ftz.{kind}": flush(half(flush(a) * flush(b))),
            f"sub.ftz.sat.{kind}": clamp(flush(half(flush(a) - flush(b)))),
        }  # fmt: skip
        cases[f"fma.rn.relu.{kind}"] = np.where(np.isnan(half(a * b + c)), nan, np.maximum(half(a * b + c), 0.0))
    for instruction, want in cases.items():
        operands = "%a, %b, %c" if instruction.startswith("fma") else "%a, %b"
        used = sources if instruction.startswith("fma") else sources[:2]
        found = lanewise(f"{instruction} %x, {operands};", [kind], used).view(np.float16).astype(np.float64)
        assert np.array_equal(found, want, equal_nan=True), instruction
