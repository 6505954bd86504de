"""Recipes that replace functions and operations: exact, fast, powers, divisions, bit intrinsics."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.bit_intrinsics import RECIPE as BIT_INTRINSICS
from kernelmate.suggest.recipes.divide import RECIPE as DIVIDE
from kernelmate.suggest.recipes.exact_functions import RECIPE as EXACT_FUNCTIONS
from kernelmate.suggest.recipes.fast_intrinsics import RECIPE as FAST_INTRINSICS
from kernelmate.suggest.recipes.powers import RECIPE as POWERS

EXACT_FUNCTIONS_SOURCE = """
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 64)"
// block = 64
// tolerance = { rtol = 1e-3, atol = 1e-3 }
// reference = "np.sin(x) / x"
// [args]
// x = "in float32[n] ~ uniform(1, 40)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __fdividef(__sinf(x[i]), x[i]);
}
"""


def test_the_full_functions_stand_instead(judged) -> None:
    (one,) = judged(EXACT_FUNCTIONS_SOURCE, EXACT_FUNCTIONS, "more accurate")
    assert "y[i] = ((sinf(x[i])) / (x[i]));" in one.candidate.kernel.source


def test_full_functions_stay(ask) -> None:
    text = EXACT_FUNCTIONS_SOURCE.replace("__fdividef(__sinf(x[i]), x[i])", "sinf(x[i])")
    assert list(EXACT_FUNCTIONS.candidates(ask(text, "more accurate"))) == []


FAST_INTRINSICS_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "{reference}"
// {tolerance}
// [args]
// x = "in float32[n] ~ uniform(0.5, 2)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    float v = x[i];
    y[i] = {value};
  }}
}}
"""
LOOSE = "tolerance = { rtol = 1e-4, atol = 1e-4 }"


def source(value: str, reference: str = "x", tolerance: str = LOOSE) -> str:
    return FAST_INTRINSICS_SOURCE.format(value=value, reference=reference, tolerance=tolerance)


@pytest.mark.parametrize(
    ("value", "reference", "wanted"),
    [
        ("expf(v) + logf(v)", "np.exp(x) + np.log(x)", "__expf(v) + __logf(v)"),
        ("exp(v) * sinf(v)", "np.exp(x) * np.sin(x)", "__expf(v) * __sinf(v)"),
        ("1.0f / sqrtf(v + 1.0f)", "1 / np.sqrt(x + 1)", "rsqrtf(v + 1.0f)"),
        ("powf(v, 1.5f)", "x ** 1.5", "__powf(v, 1.5f)"),
    ],
)
def test_functions_become_approximations_that_the_tolerance_allows(
    judged, value: str, reference: str, wanted: str
) -> None:
    (one,) = judged(source(value, reference), FAST_INTRINSICS)
    assert wanted in one.candidate.kernel.source
    assert "tolerance" in one.candidate.why


@pytest.mark.parametrize("value", ["sqrtf(v)", "exp(v * 2.0)", "exp((double)v)", "v / 3.0f", "fmaxf(v, 0.0f)"])
def test_what_has_no_approximation_or_is_double_stays(ask, value: str) -> None:
    assert list(FAST_INTRINSICS.candidates(ask(source(value)))) == []


def test_a_tolerance_without_room_is_not_tried(ask) -> None:
    assert (
        list(FAST_INTRINSICS.candidates(ask(source("expf(v)", tolerance="tolerance = { rtol = 0.0, atol = 0.0 }"))))
        == []
    )


def test_the_accuracy_given_up_is_said_once_for_each_function(judged) -> None:
    (one,) = judged(source("expf(v) + expf(-v)", "np.exp(x) + np.exp(-x)"), FAST_INTRINSICS)
    text = one.candidate.kernel.source
    assert "    // Error of __expf: up to 2 + |1.17 x| ulp.\n    y[i] = __expf(v)" in text
    assert text.count("//") == 1


POWERS_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in float32[n] ~ uniform(0.5, 2)"
// c = "in float32[6] ~ uniform(0.5, 1)"
// y = "out float32[n]"
// n = "int32"
// ///
{helper}
__global__ void k(const float* x, const float* c, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""


@pytest.mark.parametrize(
    ("body", "reference", "written"),
    [
        ("const float v = x[i];\n  y[i] = powf(v, 3.0f) + powf(v, 2);", "x**3 + x**2", "(v * v * v) + (v * v)"),
        ("y[i] = powf(x[i] + 1.0f, 5.0f);", "(x + 1)**5", "const float base = x[i] + 1.0f;"),
        (
            "float s = 0.0f;\n  for (int k = 0; k < 6; ++k) s += c[k] * powf(x[i], (float)k);\n  y[i] = s;",
            "x[:, None] ** np.arange(6) @ c",
            "++k, power *= x[i]",
        ),
    ],
)
def test_whole_powers_are_products(judged, body: str, reference: str, written: str) -> None:
    (one,) = judged(POWERS_SOURCE.format(helper="", body=body, reference=reference), POWERS, "use fewer registers")
    assert written in one.candidate.kernel.source
    assert "pow" not in one.candidate.kernel.source.replace("power", "")


def test_a_function_of_the_kernels_own_goes_along(judged) -> None:
    helper = "__device__ float cube(float v) { return powf(v, 3.0f); }"
    (one,) = judged(POWERS_SOURCE.format(helper=helper, body="y[i] = cube(x[i]);", reference="x**3"), POWERS)
    assert "return (v * v * v);" in one.candidate.kernel.unit.text


@pytest.mark.parametrize("body", ["y[i] = powf(x[i], 2.5f);", "y[i] = powf(2.0f, x[i]);", "y[i] = powf(x[i], c[0]);"])
def test_other_powers_stay(ask, body: str) -> None:
    assert list(POWERS.candidates(ask(POWERS_SOURCE.format(helper="", body=body, reference="x")))) == []


def test_a_function_that_another_kernel_calls_stays(ask) -> None:
    helper = "__device__ float cube(float v) { return powf(v, 3.0f); }\n__global__ void other(float* y) { y[0] = cube(y[0]); }"  # fmt: skip
    request = ask(POWERS_SOURCE.format(helper=helper, body="y[i] = cube(x[i]);", reference="x**3"), name="k")
    assert list(POWERS.candidates(request)) == []


DIVIDE_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 5, cols = 100 }}, {{ rows = 1, cols = 1 }}]
// grid = "rows"
// block = 64
// reference = "x / ({reference})"
// tolerance = {{ rtol = 1e-6, atol = 1e-6 }}
// [args]
// x = "in float32[rows, cols]"
// scale = "in float32[rows] ~ uniform(1, 2)"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void k(const float* x, const float* scale, float* y, int cols) {{
  const int t = threadIdx.x;
  float s = scale[blockIdx.x];
  for (int c = t; c < cols; c += blockDim.x) {{
    y[blockIdx.x * cols + c] = {value};
  }}
}}
"""


def divide_source(value: str, reference: str = "scale[:, None]") -> str:
    return DIVIDE_SOURCE.format(value=value, reference=reference)


def test_a_divisor_that_stays_is_inverted_before_the_loop(judged) -> None:
    (one,) = judged(divide_source("x[blockIdx.x * cols + c] / s"), DIVIDE)
    text = one.candidate.kernel.source
    assert text.index("const float s_inverse = 1.0f / s;") < text.index("for (")
    assert "x[blockIdx.x * cols + c] * s_inverse;" in text


def test_a_literal_is_inverted_by_the_compiler(judged) -> None:
    (one,) = judged(divide_source("x[blockIdx.x * cols + c] / 3.0f", "3"), DIVIDE)
    assert "x[blockIdx.x * cols + c] * (1.0f / 3.0f);" in one.candidate.kernel.source


NAMED = [
    ("constexpr float kLevels = 255.0f;", True),
    ("#define kLevels 255.0f", True),
    ("static const float kLevels = 255.f;", True),
    ("constexpr float kLevels = 256.0f;", False),  # the compiler multiplies by the exact reciprocal itself
    ("constexpr float kLevels = 1.0f + 254.0f;", False),
    ("__device__ float kLevels = 255.0f;", False),
    ("#ifdef FINE\n#define kLevels 65535.0f\n#else\n#define kLevels 255.0f\n#endif", False),
]


@pytest.mark.parametrize(("declared", "inverted"), NAMED)
def test_a_named_constant_is_inverted_like_its_literal(ask, declared: str, inverted: bool) -> None:
    source = f"{declared}\n{divide_source('x[blockIdx.x * cols + c] / kLevels', '255')}"
    found = [one.kernel.source for one in DIVIDE.candidates(ask(source))]
    assert ["x[blockIdx.x * cols + c] * (1.0f / kLevels);" in text for text in found] == [True] * inverted


def test_the_thread_number_is_divided_by_shifts_and_masks(judged) -> None:
    (one,) = judged(divide_source("x[blockIdx.x * cols + c] + t / 32 - t / 32 + t % 8 - t % 8", "1"), DIVIDE)
    assert "(t >> 5) - (t >> 5) + (t & 7)" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "value",
    ["x[c] / 4.0f", "x[c] / 3.0", "x[c] / cols", "x[c] / scale[c]", "c / 8", "t / 33", "1.0 / s", "x[c] * 3.0f"],
)
def test_divisions_that_are_cheap_or_not_sure_stay(ask, value: str) -> None:
    assert list(DIVIDE.candidates(ask(divide_source(value)))) == []


BIT_INTRINSICS_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 900 }}, {{ n = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in uint32[n]"
// y = "out uint32[n]"
// n = "int32"
// ///
__global__ void k(const unsigned* x, unsigned* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned v = x[i], c = 0;
  {body}
  y[i] = c;
}}
"""


@pytest.mark.parametrize(
    ("body", "reference", "written"),
    [
        ("while (v) { c += v & 1u; v >>= 1; }", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("while (v != 0) { v &= v - 1; ++c; }", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("for (int b = 0; b < 32; ++b) c += (v >> b) & 1u;", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("for (int b = 0; b < 16; ++b) if (v & (1u << b)) c++;", "np.bitwise_count(x & np.uint32(0xffff)).astype(np.uint32)", "__popc(v & 0xffffu)"),
        ("for (int b = 0; b < 32; ++b) { c = (c << 1) | (v & 1u); v >>= 1; }", "((x[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)) << (31 - np.arange(32)).astype(np.uint32)).sum(axis=1).astype(np.uint32)", "__brev(v)"),
    ],
)  # fmt: skip
def test_loops_over_bits_are_one_instruction(judged, body: str, reference: str, written: str) -> None:
    (one,) = judged(BIT_INTRINSICS_SOURCE.format(body=body, reference=reference), BIT_INTRINSICS)
    assert written in one.candidate.kernel.source
    assert "while" not in one.candidate.kernel.source
    assert "for (" not in one.candidate.kernel.source


@pytest.mark.parametrize("body", ["for (int b = 0; b < 32; ++b) c += v >> b;", "while (v) { c += v & 2u; v >>= 1; }"])
def test_other_loops_stay(ask, body: str) -> None:
    assert list(BIT_INTRINSICS.candidates(ask(BIT_INTRINSICS_SOURCE.format(body=body, reference="x")))) == []
