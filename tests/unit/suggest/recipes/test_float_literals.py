from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.float_literals import RECIPE

SOURCE = """
{head}
// /// kernelmate
// sizes = [{{ n = 100 }}]
// grid = "1"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// a = "float32 = 2.0"
// ///
__global__ void k(const float* x, float* y, int n, float a) {{
  int i = threadIdx.x;
  {body}
}}
"""


def rewritten(ask, body: str, head: str = "", ptx: str = "mul.f64 %fd1, %fd2, %fd3;") -> str | None:
    """The body after the rewrite, or None where the recipe does not apply."""
    found = list(RECIPE.candidates(ask(SOURCE.format(head=head, body=body), ptx=ptx)))
    if not found:
        return None
    assert len(found) == 1
    lines = found[0].kernel.source.splitlines()
    return "\n".join(line.strip() for line in lines[2:-1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y[i] = x[i] * 0.5;", "y[i] = x[i] * 0.5f;"),
        ("y[i] = x[i] * 1e-3;", "y[i] = x[i] * 1e-3f;"),
        ("y[i] = x[i] * 1.;", "y[i] = x[i] * 1.f;"),
        ("y[i] = x[i] * .5E+1;", "y[i] = x[i] * .5E+1f;"),
        ("y[i] = x[i] * 0x1.8p-3;", "y[i] = x[i] * 0x1.8p-3f;"),
        ("y[i] = x[i] * 1'000.0;", "y[i] = x[i] * 1'000.0f;"),
        ("y[i] += 2.0 * x[i];", "y[i] += 2.0f * x[i];"),
        ("float v = -(x[i] + 1.0) / 3.0;", "float v = -(x[i] + 1.0f) / 3.0f;"),
        ("y[i] = exp(x[i] * 0.5);", "y[i] = expf(x[i] * 0.5f);"),
        ("y[i] = 1.0 / (1.0 + exp(-x[i]));", "y[i] = 1.0f / (1.0f + expf(-x[i]));"),
        ("y[i] = pow(x[i], 2);", "y[i] = powf(x[i], 2);"),
        ("y[i] = sqrt((double)1.0) * 0.5f;", None),
        ("y[i] = x[i] / sqrt(n);", "y[i] = x[i] / sqrtf(n);"),
        ("y[i] = std::sqrt(x[i] + 1e-5);", "y[i] = sqrtf(x[i] + 1e-5f);"),
        ("y[i] = max(x[i], 0.0);", "y[i] = max(x[i], 0.0f);"),
        ("y[i] = x[i] > 0.5 ? x[i] : 0.0;", "y[i] = x[i] > 0.5f ? x[i] : 0.0f;"),
        ("if (x[i] * 2.0 < a) y[i] = 1.0;", "if (x[i] * 2.0f < a) y[i] = 1.0f;"),
        ("y[i] = (float)(x[i] * 0.5);", "y[i] = (float)(x[i] * 0.5f);"),
        ("y[i] = expf(x[i] * 0.5);", "y[i] = expf(x[i] * 0.5f);"),
        ("float4 v; v.x = x[i]; y[i] = v.x * 0.5;", "float4 v; v.x = x[i]; y[i] = v.x * 0.5f;"),
        ("y[i] = *(x + i) * 0.5;", "y[i] = *(x + i) * 0.5f;"),
    ],
)
def test_doubles_by_spelling_become_floats(ask, before: str, after: str | None) -> None:
    assert rewritten(ask, before) == after


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] * 0.5f;",
        "int k = n * 0.5;",
        "y[(int)(n * 0.5)] = 0.0f;",
        "double s = x[i] * 0.5; y[i] = s;",
        "double s = 0; s += x[i]; y[i] = s * 0.5;",
        "y[i] = helper(0.5);",
        "y[i] = x[i] * 1e300;",
        "y[i] = x[i] * 1e-60;",
        "y[i] = x[i] * 0.5L;",
        "y[i] = x[i] * unknown * 0.5;",
        "auto v = x[i] * 0.5;",
        "y[i] = x[0x1e3];",
        "y[i] = x[i] * 1e5f;",
    ],
)
def test_what_is_not_surely_float_stays(ask, body: str) -> None:
    assert rewritten(ask, body) is None


def test_without_double_instructions_there_is_nothing_to_gain(ask) -> None:
    assert rewritten(ask, "y[i] = x[i] * 0.5;", ptx="mul.f32 %f1, %f2, %f3;") is None


def test_template_types_are_left_alone(ask) -> None:
    source = (
        SOURCE.format(head="", body="y[i] = x[i] * 0.5;")
        .replace("__global__", "template <typename T> __global__")
        .replace("float*", "T*")
        .replace("// block = 128", '// block = 128\n// instances = ["k<float>"]')
    )
    assert list(RECIPE.candidates(ask(source, ptx=".f64"))) == []


def test_a_macro_of_this_kernel_alone_is_changed_where_it_stands(ask) -> None:
    request = ask(SOURCE.format(head="#define EPS 1e-5  // small", body="y[i] = x[i] + EPS;"), ptx=".f64")
    (candidate,) = RECIPE.candidates(request)
    assert "#define EPS 1e-5f  // small" in candidate.kernel.unit.text


def test_a_macro_that_others_use_stays(ask) -> None:
    head = "#define EPS 1e-5\n__device__ double other(double v) { return v + EPS; }"
    request = ask(SOURCE.format(head=head, body="y[i] = x[i] + EPS;"), ptx=".f64", name="k")
    assert list(RECIPE.candidates(request)) == []


def test_text_that_is_not_ascii_is_cut_at_the_right_places(ask) -> None:
    assert rewritten(ask, "/* größer als ½ */ y[i] = x[i] * 0.5; // ½") == "/* größer als ½ */ y[i] = x[i] * 0.5f; // ½"


def test_the_reason_counts_and_names_the_gpus_rate(ask) -> None:
    (candidate,) = RECIPE.candidates(
        ask(SOURCE.format(head="", body="y[i] = x[i] * 0.5;"), ptx="mul.f64 a;\nadd.f64 b;")
    )
    assert "0.5" in candidate.why
    assert "2 double-precision instructions" in candidate.why
    assert "1/2 of its float rate" in candidate.why
