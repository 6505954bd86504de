"""NumPy models of what kernels really do: honest arithmetic passes, narrower arithmetic does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelmate.checks.compare import compare
from kernelmate.checks.inputs import draw
from kernelmate.checks.reference import python_reference
from kernelmate.checks.styles import NORMAL, STRESS_STYLES, UNIFORM, InputStyle
from kernelmate.checks.tolerances import derive
from kernelmate.source import numpy_dtype

F = np.float32

POINTWISE = """
sizes = [{ n = 8 }]
grid = 1
block = 32
reference = "REFERENCE"
[args]
x = "in DTYPE[n]"
w = "in DTYPE[n]"
y = "out DTYPE[SHAPE]"
n = "int32"
"""
TYPES = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16"}


@pytest.fixture
def judged(contract_of):
    """Compare what a body makes of drawn inputs with an expression."""

    def compared(reference, body, *, n=1 << 14, style=NORMAL, seed=0, dtype="float32", shape="n", exact=True):
        c_type = TYPES[dtype]
        block = POINTWISE.replace("REFERENCE", reference).replace("DTYPE", dtype).replace("SHAPE", shape)
        contract = contract_of(block, f"const {c_type}* x, const {c_type}* w, {c_type}* y, int n")
        oracle = python_reference(contract, Path())
        size = {"n": n}
        arrays = draw(contract, size, (seed, 1), style, Path())
        want = oracle(arrays, size)
        allowed = derive(contract, oracle, arrays, size, want, (seed,), exact=exact)
        with np.errstate(all="ignore"):
            got = np.asarray(body(arrays["x"], arrays["w"])).astype(numpy_dtype(dtype))
        return compare("y", got, want["y"], allowed.error["y"], allowed.coarse["y"])

    return compared


def ulps(values, count):
    """float32 values with errors of up to `count` units in the last place."""
    noise = np.random.default_rng(5).uniform(-1, 1, np.shape(values))
    return (np.asarray(values, np.float64) * (1 + noise * count * 2.0**-23)).astype(F)


def fast_silu(x, w):
    """With `__expf` (2 + 1.16 |x| ulp) and an approximate division (2 ulp), flushing to zero."""
    e = ulps(np.exp(-x), 2 + 1.16 * np.abs(x))
    y = ulps(x / (F(1) + e), 2)
    return np.where(np.abs(y) < np.finfo(F).tiny, F(0), y)


def gelu(x, w):
    """With tanh as CUDA computes it: by exp, away from zero."""
    v = F(0.7978845608) * (x + F(0.044715) * x * x * x)
    far = np.sign(v) * (F(1) - F(2) / (ulps(np.exp(F(2) * np.abs(v)), 2) + F(1)))
    return F(0.5) * x * (F(1) + np.where(np.abs(v) < 0.55, ulps(np.tanh(v), 1), far))


def sinusoid(x, w):
    frequency = ulps(np.exp((F(-9.2103404) * np.arange(x.size, dtype=F) / F(x.size)).astype(F)), 2)
    return ulps(np.sin((x * F(1000) * frequency).astype(F)), 1)


HONEST = {
    "x * w + x": lambda x, w: x * w + x,
    "0.9 * x + 0.1 * w": lambda x, w: F(0.9) * x + F(0.1) * w,
    "x / (1 + np.exp(-x))": fast_silu,
    "np.tanh(x)": lambda x, w: ulps(np.tanh(x.astype(np.float64)), 2),
    "0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))": gelu,
    "w / np.sqrt(x * x + 1e-5)": lambda x, w: w * ulps(1 / np.sqrt((x * x + F(1e-5)).astype(np.float64)), 2),
    "np.sin(x * 1000 * np.exp(-9.210340371976184 * np.arange(n) / n))": sinusoid,
    "np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)": lambda x, w: (
        ulps(np.log1p(ulps(np.exp(-np.abs(x)), 2)), 2) + np.maximum(x, F(0))
    ),
}
ORDINARY = [NORMAL, UNIFORM, *(style for style in STRESS_STYLES if not style.specials)]


# A phase of a million has no digits in float32: sinusoids are not tried on large inputs.
@pytest.mark.parametrize(
    ("reference", "style"),
    [
        (r, s)
        for r in HONEST
        for s in ORDINARY
        if "1000" not in r or (s.scale <= 1 and s.name not in ("offset", "mixed"))
    ],
    ids=lambda value: str(value)[:40],
)
def test_honest_pointwise_float32_passes(judged, reference, style) -> None:
    for seed in range(2):
        found = judged(reference, HONEST[reference], style=style, seed=seed)
        assert found.right, found


@pytest.mark.parametrize("n", [100_000])
def test_two_terms_that_cancel_pass_wherever_they_do(judged, n) -> None:
    reference = "0.9 * x + 0.1 * w"
    for seed in range(4):
        assert judged(reference, HONEST[reference], n=n, seed=seed).right


@pytest.mark.parametrize(
    ("reference", "body"),
    [
        ("np.tanh(x)", lambda x, w: ulps(np.tanh(x), 2**11)),
        ("x / (1 + np.exp(-x))", lambda x, w: (x / (1 + np.exp(-x).astype(np.float16))).astype(F)),
        ("x * w + x", lambda x, w: x.astype(np.float16) * w.astype(np.float16) + x.astype(np.float16)),
        ("x * w + x", lambda x, w: x * w * F(1.0001) + x),
    ],
    ids=["tanh.approx", "half exponential", "half arithmetic", "a constant that is a little off"],
)
@pytest.mark.parametrize("style", [NORMAL, UNIFORM], ids=str)
def test_rough_pointwise_arithmetic_is_lost_precision(judged, reference, body, style) -> None:
    found = judged(reference, body, style=style)
    assert not found.right
    assert found.coarse


def test_a_wrong_formula_is_not_lost_precision(judged) -> None:
    found = judged("x * w + x", lambda x, w: x * w - x)
    assert not found.right
    assert not found.coarse


def one_by_one(values, dtype):
    return np.add.accumulate(values.astype(dtype), dtype=dtype)[-1:]


def by_lanes(values, dtype):
    """256 lanes, each one by one, then a tree: how a block adds up."""
    rows = -(-values.size // 256)
    table = np.zeros((rows, 256), dtype)
    table.reshape(-1)[: values.size] = values.astype(dtype)
    lanes = np.add.accumulate(table, axis=0, dtype=dtype)[-1]
    while lanes.size > 1:
        lanes = (lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]).astype(dtype)
    return lanes


@pytest.mark.parametrize("add", [one_by_one, by_lanes])
@pytest.mark.parametrize("n", [1, 3, 100, 4096, 1 << 17, 1 << 20])
@pytest.mark.parametrize("style", [NORMAL, UNIFORM, InputStyle("normal", 1e-3)], ids=str)
def test_float32_dot_products_pass_in_any_order(judged, add, n, style) -> None:
    for reference, terms in (
        ("(x * w).sum(keepdims=True)", lambda x, w: x * w),
        ("(x * x).sum(keepdims=True)", lambda x, w: x * x),
    ):
        found = judged(reference, lambda x, w, terms=terms: add(terms(x, w), F), n=n, style=style, shape="1")
        assert found.right, found


@pytest.mark.parametrize("add", [one_by_one, by_lanes])
@pytest.mark.parametrize("n", [100, 4096, 1 << 17])
@pytest.mark.parametrize("reference", ["(x * w).sum(keepdims=True)", "(x * x).sum(keepdims=True)"])
def test_float16_dot_products_fail_in_any_order(judged, add, n, reference) -> None:
    wrong = 0
    for seed in range(4):
        terms = (lambda x, w: x * w) if "w" in reference else (lambda x, w: x * x)
        wrong += not judged(reference, lambda x, w, t=terms: add(t(x, w), np.float16), n=n, seed=seed, shape="1").right
    assert wrong >= 3  # a single number may come out right by luck


def test_double_precision_is_held_to_double_precision(judged) -> None:
    reference = "(x * w).sum(keepdims=True)"
    assert judged(reference, lambda x, w: one_by_one(x * w, np.float64), n=4096, dtype="float64", shape="1").right
    assert not judged(reference, lambda x, w: one_by_one(x * w, np.float32), n=4096, dtype="float64", shape="1").right
    smooth = "0.5 * x * (1 + np.tanh(x))"
    assert judged(smooth, lambda x, w: x / (1 + np.exp(-2 * x)), dtype="float64").right


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_narrow_outputs_may_be_rounded_once_and_not_more(judged, dtype, unit) -> None:
    narrow = numpy_dtype(dtype)

    def once(x, w):
        return x.astype(F) * w.astype(F) + x.astype(F)

    def five_units(x, w):
        return (once(x, w) * F(1 + 5 * unit)).astype(narrow)

    assert judged("x * w + x", once, dtype=dtype).right
    assert not judged("x * w + x", five_units, dtype=dtype).right


def test_positions_in_floating_dress_are_not_moved(judged) -> None:
    """Rounding a moved whole number down would make the reference seem as uncertain as a whole step."""
    reference = "np.floor(np.rint(100 * x)) * 1.0 + 0 * w"
    off_by_one = judged(reference, lambda x, w: np.rint(100 * x) + 1, style=InputStyle("zeros"))
    assert not off_by_one.right


def test_a_kernel_as_reference_is_held_less_tightly_and_still_held(judged) -> None:
    reference = "(x * w).sum(keepdims=True)"
    assert judged(reference, lambda x, w: one_by_one(x * w, F), n=4096, shape="1", exact=False).right
    assert not judged(reference, lambda x, w: one_by_one(x * w, np.float16), n=4096, shape="1", exact=False).right
