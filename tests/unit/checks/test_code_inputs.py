"""Inputs that a version's code suggests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelmate.checks.code_inputs import suggested_styles, with_styles
from kernelmate.checks.inputs import draw
from kernelmate.checks.positions import HUGE_DIVISOR, comparisons_of, rounded_factors
from kernelmate.checks.size_plan import PlannedSize
from kernelmate.checks.styles import InputStyle, milder_style
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Argument, CompileOptions, Contract, Version
from kernelmate.source import find_kernels, text_unit

CONTRACT = Contract(
    "k", ({"n": 640},), ("cdiv(n, 64)",), ("64",),
    (Argument("x", "in", "float32", ("n",)), Argument("v", "in", "int32", ("n",)), Argument("b", "in", "uint8", ("n",)),
     Argument("y", "out", "float32", ("n",)), Argument("n", None, "int32"), Argument("k", None, "int32", value="3"),
     Argument("a", None, "float32", value="1.5")),
)  # fmt: skip
POSITIONS = Contract(
    "k", ({"rows": 8, "cols": 64},), ("rows",), ("64",),
    (Argument("x", "in", "float32", ("rows", "cols")), Argument("y", "out", "int32", ("rows",))),
)  # fmt: skip
PLAIN = "y[i] = x[i] + v[i] + b[i] + k * a;"


def version(body: str, above: str = "") -> Version:
    text = f"""{above}
__global__ void k(const float* x, const int* v, const unsigned char* b, float* y, int n, int k, float a) {{
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) {{ {body} }}
}}
"""
    kernel = find_kernels(text_unit(text, "k.cu"))[0]
    made = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
    assert made.ok, made.diagnostics
    return Version(made, CONTRACT, kernel.unit)


BASELINE = version(PLAIN)


def suggested(body: str, above: str = "", baseline: Version = BASELINE) -> tuple[InputStyle, ...]:
    return suggested_styles(CONTRACT, version(body, above), baseline, ("k", "a"))


@pytest.mark.parametrize(
    ("body", "name", "values"),
    [
        ("y[i] = x[i] == -999.0f ? 0 : x[i];", "x", (-999.0,)),
        ("y[i] = fminf(x[i], 60.5f);", "x", (60.5,)),
        ("y[i] = __float_as_int(x[i]) == 0x42f6e979 ? 0 : x[i];", "x", (float(np.float32(123.456)),)),
        ("__shared__ float s[64]; s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[0] > 7.5f;", "x", (7.5,)),
        ("y[i] = x[i] * 8.0f == 616.0f ? 0 : x[i];", "x", (77.0,)),
        ("y[i] = v[i] == -100 ? 0 : v[i];", "v", (-100,)),
        (
            "y[i] = (__float_as_int(x[i]) & 0xfffff) == 0x12345 ? 0 : x[i];",
            "x",
            (float(np.uint32(0x3F812345).view(np.float32)),),
        ),
        ("y[i] = v[i] >= 100 && v[i] <= 102 ? 0 : v[i];", "v", (100,)),
        ("y[i] = (float)v[i] > 1000.5f ? 0 : v[i];", "v", (1000,)),
    ],
)
def test_constants_that_elements_are_compared_with_are_planted(body, name, values) -> None:
    (style,) = (one for one in suggested(body) if one.constants)
    assert set(values) <= set(dict(style.constants)[name])
    drawn = draw(CONTRACT, {"n": 640}, (1, 2), style, None)[name]
    assert all((drawn == value).any() for value in values)


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        "y[i] = x[i] > 0 ? v[i] : b[i];",  # zeros are drawn anyway
        "y[i] = v[i] > 4 || v[i] == 65536 ? x[i] : b[i];",  # small integers and powers of two as well
        "y[i] = b[i] == 200 ? x[i] : v[i];",  # and all bytes
        "if (i > 300) y[i] = x[i] + v[i];",  # a matter of sizes
        "y[i] = isnan(x[i]) || isinf(x[i]) ? v[i] : b[i];",
    ],
)
def test_other_comparisons_suggest_no_values(body) -> None:
    assert not any(one.constants for one in suggested(body))


def test_what_the_baseline_compares_with_too_is_not_suggested() -> None:
    body = "y[i] = x[i] == -999.0f ? 0 : x[i];"
    assert suggested(body, baseline=version(body)) == ()


def test_functions_that_are_called_count_as_comparing_with_all_arrays() -> None:
    above = "__device__ __noinline__ float f(float t) { return t == 77.5f ? 0 : t; }"
    (style,) = (one for one in suggested("y[i] = f(x[i]) + v[i];", above) if one.constants)
    assert 77.5 in dict(style.constants)["x"]


def test_an_approximate_division_suggests_huge_operands() -> None:
    found = comparisons_of(version("y[i] = __fdividef(x[i], x[i] + 2.0f);"), CONTRACT)
    assert [(one.name, one.value) for one in found if one.value > 1e9] == [("x", HUGE_DIVISOR)]


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("y[i] = x[max(i - min(k, 8), 0)];", [("k", 9)]),
        ("y[i] = k == 12 ? 0 : x[i];", [("k", 12)]),
        ("y[i] = k > 2 ? x[i] : 0;", []),  # 1 and 2 are near 3
        ("y[i] = k > 5000 ? 0 : x[i];", []),  # far from it
        ("y[i] = k > -20 ? x[i] : 0;", []),  # of another sign
        ("y[i] = a > 8.0f ? 0 : x[i];", [("a", 10.0)]),
    ],
)
def test_scalars_are_tried_beyond_constants(body, given) -> None:
    styles = [one for one in suggested(body) if one.given]
    assert [one.given[0] for one in styles] == given
    for style in styles:
        drawn = draw(CONTRACT, {"n": 640}, (1, 2), style, None)
        assert float(drawn[given[0][0]]) == given[0][1]


def test_roundings_suggest_the_numbers_at_which_they_jump() -> None:
    (style,) = (one for one in suggested("y[i] = ceilf(x[i]) + v[i] + b[i] + k * a;") if one.constants)
    assert dict(style.constants) == {"x": (0.5, 1.0, 2.0, 3.0)}
    x = draw(CONTRACT, {"n": 640}, (1,), style, Path())["x"]
    assert {-2.0, -0.5, 1.0, 2.5, np.nextafter(np.float32(2), np.float32(3))} <= set(x.tolist())


@pytest.mark.parametrize(
    ("body", "factors"),
    [
        ("y[i] = rintf(x[i] * 2.0f);", (2.0,)),
        ("y[i] = roundf(x[i] * -16.0f);", (16.0,)),
        ("y[i] = rintf(x[i] / 4.0f * 3.0f);", (3.0, 0.75)),
        ("y[i] = floorf(fmaf(x[i], 8.0f, 0.5f));", (8.0,)),
        ("y[i] = rintf(fminf(x[i] * 10.0f, 100.0f));", (10.0,)),
        ("y[i] = rintf(x[i]) * 2.0f;", ()),
        ("y[i] = x[i] * 2.0f;", ()),
    ],
)
def test_factors_before_a_rounding_scale_the_numbers_at_which_it_jumps(body, factors) -> None:
    compiled = version(body).compiled
    assert rounded_factors(compiled.ptx, compiled.lowered_name) == factors
    styles = [one for one in suggested(body) if one.constants]
    assert len(styles) == ("rint" in body or "round" in body or "floor" in body) + bool(factors)
    if factors:
        style = styles[-1]
        x = draw(CONTRACT, {"n": 640}, (1,), style, Path())["x"]
        ties = np.array([place / factors[-1] for place in (-1.5, -0.5, 0.5, 2.5)], np.float32)
        assert set(ties.tolist()) <= set(x.tolist())


def test_scalars_that_are_mere_values_are_tried_with_bits_in_every_byte() -> None:
    styles = suggested_styles(
        CONTRACT, version("y[i] = x[i] + v[i] + b[i] + (short)k * a;"), BASELINE, ("k", "a"), ("k",)
    )
    assert InputStyle("normal", stress=True, given=(("k", 0x13579BDF),)) in styles
    assert suggested_styles(CONTRACT, BASELINE, BASELINE, ("k", "a"), ("k",)) == ()


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ("y[i] = x[i] + (float)v[i];", ["high"]),
        ("y[i] = (short)v[i] * (short)n + x[i] > 0;", ["high"]),
        ("atomicAdd(y + (v[i] & 15), x[i]);", ["equal"]),
        ("y[i] = x[i] * a;", []),
    ],
)
def test_conversions_suggest_large_integers_and_atomics_equal_ones(body, kinds) -> None:
    found = suggested(body, baseline=version("y[i] = x[i];"))
    assert ["high" if one.high else "equal" for one in found if one.high or one.equal] == kinds


def test_large_and_equal_integers_are_drawn_so() -> None:
    high = draw(CONTRACT, {"n": 640}, (1, 2), InputStyle("integers", high=True), None)
    assert high["v"].min() >= 2**31 - 2**28 - 1
    assert high["b"].min() >= 223
    equal = draw(CONTRACT, {"n": 640}, (1, 2), InputStyle("integers", equal=True), None)
    assert len(np.unique(equal["v"])) == len(np.unique(equal["b"])) == 1
    narrow = draw(CONTRACT, {"n": 640}, (1, 2), InputStyle("integers", high=True, bits=10), None)
    assert narrow["v"].max() <= 1023


def test_late_rows_turn_positive_in_their_last_quarter() -> None:
    drawn = draw(POSITIONS, {"rows": 8, "cols": 64}, (1, 2), InputStyle("late"), None)["x"]
    first = (drawn > 0).argmax(axis=1)
    assert ((drawn > 0).any(axis=1) & (first >= 47)).all()
    assert draw(POSITIONS, {"rows": 2, "cols": 0}, (1, 2), InputStyle("late"), None)["x"].shape == (2, 0)


def test_rows_late_are_suggested_where_an_output_may_hold_positions() -> None:
    assert [one.name for one in suggested_styles(POSITIONS, BASELINE, BASELINE, ())] == ["late"]
    assert suggested_styles(CONTRACT, BASELINE, BASELINE, ()) == ()


ATOMIC = version("atomicAdd(&y[v[i]], x[i]);")


def anywhere(style: InputStyle, size: Mapping[str, int]) -> bool:
    return True


def test_each_style_is_tried_once_where_it_tells_most() -> None:
    sizes = [PlannedSize({"rows": r, "cols": c}, "own") for r, c in ((8, 64), (200, 100), (1, 4097), (9, 20000))]
    late, plain = InputStyle("late"), InputStyle("normal", constants=(("x", (7.5,)),))
    equal = InputStyle("integers", equal=True)
    assert [one.styles for one in with_styles(POSITIONS, sizes, (late, plain, equal), anywhere)] == [
        (),
        (plain,),
        (late,),
        (equal,),
    ]
    strided = InputStyle("strided", strides=(32,))
    assert [one.styles for one in with_styles(POSITIONS, sizes[:3], (strided,), anywhere)] == [(), (), (strided,)]
    small = with_styles(POSITIONS, sizes, (plain,), lambda _, size: size["rows"] == 8)
    assert [one.styles for one in small] == [(plain,), (), (), ()]


def test_compared_values_are_also_tried_at_sizes_that_conditions_select() -> None:
    sizes = [PlannedSize({"rows": r, "cols": 8}, "own", selected=r == 9) for r in (100, 9, 50)]
    plain, given = InputStyle("normal", constants=(("x", (7.5,)),)), InputStyle("normal", given=(("a", 2.0),))
    planned = with_styles(POSITIONS, sizes, (plain, given, InputStyle("late")), anywhere)
    assert [one.styles[:2] for one in planned] == [(plain, given), (plain, given), ()]


def test_integers_alone_are_tried_at_larger_sizes_and_wide_sums_on_large_ones() -> None:
    words = Contract(
        "k", ({"n": 100_000},), ("1",), ("64",),
        (Argument("x", "in", "uint16", ("n",)), Argument("y", "out", "int64", ("1",))),
    )  # fmt: skip
    (high,) = suggested_styles(words, BASELINE, version("y[i] = x[i];"), ())
    assert high.high
    sizes = [PlannedSize({"n": n}, "own") for n in (1000, 100_000, 2_000_000)]
    assert [one.styles for one in with_styles(words, sizes, (high,), anywhere)] == [(), (high,), ()]


def test_equal_integers_are_tried_where_most_of_them_are() -> None:
    lists = Contract(
        "k", ({"n": 64, "d": 8},), ("1",), ("64",),
        (Argument("v", "in", "int32", ("n",), distribution="integers(0, d)"), Argument("x", "in", "float32", ("n", "d")),
         Argument("y", "inout", "int32", ("d",))),
    )  # fmt: skip
    (equal,) = (one for one in suggested_styles(lists, ATOMIC, BASELINE, ()) if one.equal)
    sizes = [PlannedSize({"n": n, "d": d}, "own") for n, d in ((64, 8), (1025, 3), (3, 4097))]
    assert [one.styles for one in with_styles(lists, sizes, (equal,), anywhere)] == [(), (equal,), ()]
    drawn = draw(lists, {"n": 500, "d": 8}, (1, 2), equal, None)["v"]
    assert drawn.min() == drawn.max()
    assert 0 <= drawn[0] < 8
    assert str(equal) == "integer inputs, equal in each array"


def test_selections_get_rows_whose_largest_elements_belong_to_one_lane() -> None:
    shorter = version("y[i] = fmaxf(x[i], x[n - 1 - i]);")
    (style,) = (one for one in suggested_styles(POSITIONS, shorter, BASELINE, ()) if one.name == "strided")
    assert style.strides == (32, 64)
    declared = replace(POSITIONS, args=(replace(POSITIONS.args[0], distribution="normal"), *POSITIONS.args[1:]))
    for contract in (POSITIONS, declared):
        drawn = draw(contract, {"rows": 4, "cols": 200}, (1, 2), style, None)["x"]
        for row, stride in zip(drawn, (32, 64, 32, 64), strict=True):
            largest = np.argsort(row)[-4:]
            assert len(set(largest % stride)) <= 2
            assert len(set(np.argsort(row)[-3:] % stride)) == 1
        assert abs(drawn.mean()) < 0.2


@pytest.mark.parametrize(("limit", "tried"), [("1e-30f", True), ("1e-7f", True), ("0.5f", False), ("0.0f", False)])
def test_tiny_constants_are_met_by_tiny_inputs(limit: str, tried: bool) -> None:
    styles = suggested(f"y[i] = x[i] * x[i] > {limit} ? x[i] : 0.0f;")
    assert any(one.name == "normal" and 0 < one.scale < 1e-6 for one in styles) is tried


def test_large_constants_are_left_out_where_the_baseline_does_not_bear_them() -> None:
    style = InputStyle("normal", constants=(("x", (7.5, 3e38)),))
    assert milder_style(style, {"n": 640}, [], failed=False) == InputStyle("normal", constants=(("x", (7.5,)),))


def test_neighbours_of_constants_are_left_out_where_the_baseline_and_its_reference_disagree_on_them() -> None:
    """`x + 4` rounds the neighbour of a bin's edge to the edge, so that only the edge itself has one right bin."""
    style = InputStyle("normal", constants=(("x", (7.5,)),))
    alone = milder_style(style, {"n": 640}, [], failed=False)
    assert alone == replace(style, alone=True)
    assert milder_style(style, {"n": 640}, [], failed=True) is None
    assert milder_style(alone, {"n": 640}, [], failed=False) is None
    size, beside = {"n": 640}, np.nextafter(np.float32(7.5), np.float32(8))
    drawn = {one: draw(CONTRACT, size, (5,), one, Path())["x"] for one in (style, alone)}
    assert all(7.5 in one for one in drawn.values())
    assert [beside in drawn[one] for one in (style, alone)] == [True, False]


def test_a_scalar_that_bounds_a_loop_is_enlarged_where_code_has_new_limits() -> None:
    tiled = version("for (int d = 0; d <= min(k, 1 << 20); ++d) y[i] += x[min(i + d, n - 1)] * 80;")
    plain = version("for (int d = 0; d <= k; ++d) y[i] += x[min(i + d, n - 1)];")
    styles = suggested_styles(CONTRACT, tiled, plain, ("k", "a"))
    assert (("k", 13.0),) in [style.given for style in styles]
    assert (("k", 13.0),) not in [style.given for style in suggested_styles(CONTRACT, plain, plain, ("k", "a"))]


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("y[i] = x[i] + (k & 15);", [(("k", 17.0),)]),
        ("y[i] = x[i] + k * v[i] % 1000;", [(("k", 1001.0),)]),
        ("y[i] = x[i] + (v[i] & 15) + k;", []),  # not of the scalar
        ("y[i] = x[i] + (k & 2);", []),  # a single bit, and smaller than the value
    ],
)
def test_scalars_exceed_the_range_that_code_keeps_of_them(body, given) -> None:
    assert [one.given for one in suggested(body) if one.given] == given


def test_wide_values_of_unsigned_scalars_include_the_highest_bit() -> None:
    arguments = [replace(a, dtype="uint32") if a.name == "k" else a for a in CONTRACT.args]
    unsigned = replace(CONTRACT, args=tuple(arguments))
    found = suggested_styles(unsigned, version("y[i] = k & 0x7fffffff;"), BASELINE, (), ("k",))
    assert [one.given for one in found if one.given] == [(("k", 0x13579BDF),), (("k", 0xECA86420),)]


MADE = replace(CONTRACT, inputs="made.py:make")


def test_made_floating_arrays_are_changed_as_code_suggests_and_made_indices_stay() -> None:
    limited = version("y[i] = fminf(x[max(v[i], 0) & 511], 60.5f) + (v[i] == -100 || b[i] == 77);")
    plain = version("y[i] = x[max(v[i], 0) & 511] + b[i];")
    found = suggested_styles(MADE, limited, plain, ())
    (planted,) = (one for one in found if one.constants)
    assert dict(planted.constants) == {"x": (60.5,)}
    assert suggested_styles(MADE, plain, plain, ()) == ()
    ordered = suggested_styles(replace(MADE, args=POSITIONS.args, sizes=POSITIONS.sizes), limited, plain, ())
    assert [one.name for one in ordered if not one.constants] == ["repeated", "strided"]


EUCLID = (
    "int p = max(v[i], 0), q = b[i]; for (int step = 0; LIMIT q; ++step) { int t = p % q; p = q; q = t; } y[i] = p;"
)


def test_integers_that_take_many_steps_are_tried_where_code_limits_a_loop() -> None:
    plain, limited = version(EUCLID.replace("LIMIT", "")), version(EUCLID.replace("LIMIT", "step < 44 &&"))
    (style,) = (one for one in suggested_styles(CONTRACT, limited, plain, ()) if one.chained)
    assert set(style.chained) <= {"v", "b"}
    assert "many steps" in str(style)
    assert not any(one.chained for one in suggested_styles(CONTRACT, plain, plain, ()))


def test_planted_pairs_take_the_most_steps_of_euclids_algorithm() -> None:
    pair = Contract(
        "k", ({"n": 64},), ("1",), ("64",),
        (Argument("p", "in", "int32", ("n",)), Argument("q", "in", "int32", ("n",), distribution="integers(0, 1000)")),
    )  # fmt: skip
    style = InputStyle("normal", chained=("p", "q"))
    drawn = draw(pair, {"n": 64}, (1, 2), style, None)
    assert ((drawn["p"] == 987) & (drawn["q"] == 610)).any()
    assert ((drawn["p"] == 610) & (drawn["q"] == 987)).any()
    assert drawn["q"].max() < 1000
    free = draw(pair, {"n": 64}, (1, 2), replace(style, chained=("p",)), None)["p"]
    assert {1836311903, 670617279} <= set(free.tolist())


def test_constants_outside_a_declared_distribution_are_not_planted() -> None:
    declared = Contract(
        "k", ({"n": 640},), ("1",), ("64",), (Argument("x", "in", "float32", ("n",), distribution="uniform(0, 1)"),)
    )
    style = InputStyle("normal", constants=(("x", (0.25, 77.5)),))
    drawn = draw(declared, {"n": 640}, (1, 2), style, None)["x"]
    assert (drawn == 0.25).any()
    assert drawn.min() >= 0
    assert drawn.max() < 1


WHOLE = Contract(
    "k", ({"rows": 4, "cols": 64},), ("rows",), ("64",),
    (Argument("x", "in", "int8", ("rows", "cols")), Argument("y", "out", "int32", ("rows",))),
)  # fmt: skip


def test_integers_that_lose_high_bits_get_the_smallest_ones_in_the_longest_row() -> None:
    found = suggested("y[i] = (short)(v[i] * v[i]);", baseline=version("y[i] = 0;"))
    styles = [style for style in found if style.name == "integers"]
    assert [style.low for style in styles] == [False, True]
    sizes = [PlannedSize(size, "own") for size in ({"rows": 3000, "cols": 1}, {"rows": 1, "cols": 900})]
    _, longest = with_styles(WHOLE, sizes, styles[1:], lambda style, size: True)
    assert longest.styles == (styles[1],)
    assert (draw(WHOLE, {"rows": 2, "cols": 3}, (1, 2), styles[1], None)["x"] == -128).all()


@pytest.mark.parametrize(("below", "tried"), [("x[i] < x[0]", True), ("x[i] * 2 < x[0]", False)])
def test_elements_nearly_equal_where_a_baseline_without_arithmetic_gives_positions(below: str, tried: bool) -> None:
    contract = replace(CONTRACT, args=tuple(replace(a, dtype="int32") if a.name == "y" else a for a in CONTRACT.args))
    theirs, mine = (version(f"((int*)y)[i] = {text};") for text in (f"{below}", f"{below} && i > 0"))
    assert any(style.name == "close" for style in suggested_styles(contract, mine, theirs, ())) == tried
    assert not any(style.name == "close" for style in suggested_styles(CONTRACT, mine, theirs, ()))


def test_elements_of_a_declared_distribution_are_equal_where_comparisons_differ() -> None:
    contract = replace(CONTRACT, args=(replace(CONTRACT.args[0], distribution="normal"), *CONTRACT.args[1:]))
    body = "y[i] = x[i] < x[0] ? x[i] : x[0];"
    found = suggested_styles(contract, version(body), BASELINE, ())
    (style,) = (one for one in found if one.name == "repeated")
    drawn = draw(contract, {"n": 640}, (1, 2), style, None)["x"]
    assert np.count_nonzero(drawn == drawn[0]) > 20
    assert not [one for one in suggested(body) if one.name == "repeated"]
