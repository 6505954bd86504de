from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.vectorize import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3001 }}, {{ n = 4 }}, {{ n = 3 }}, {{ n = 1 }}]
// grid = "{grid}"
// block = 64
// reference = "x + 1"
// [args]
// x = "in {dtype}[n] ~ integers(0, 50)"
// y = "out {dtype}[n]"
// n = "int32"
// ///
__global__ void k(const {type}* x, {type}* y, int n) {{
  {body}
}}
"""
THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) {\n    y[i] = x[i] + 1;  // each\n  }"
LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + 1;"


def source(body: str, dtype: str = "float32", kind: str = "float", grid: str = "cdiv(n, block)") -> str:
    return SOURCE.format(body=body, dtype=dtype, type=kind, grid=grid)


def test_one_statement_on_floats_is_written_for_each_component_of_cudas_vectors(judged) -> None:
    (one,) = judged(source(THREAD), RECIPE)
    text = one.candidate.kernel.source
    assert "const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);" in text
    assert (
        "float4 accesses need 16-byte alignment; without it, and for what is left, elements go one by one."
        in " ".join(text.replace("//", "").split())
    )
    assert "if (first + 4 <= n && ((size_t)y | (size_t)x) % 16 == 0) {" in text
    assert "    const float4 x4 = *reinterpret_cast<const float4*>(x + first);" in text
    assert "    y4.w = x4.w + 1;\n    *reinterpret_cast<float4*>(y + first) = y4;" in text
    assert text.count("y[i] = x[i] + 1;  // each") == text.count("// each") == 1
    assert one.candidate.contract.grid == ("cdiv(n, block * 4)",)


@pytest.mark.parametrize(("dtype", "kind", "count"), [("int16", "short", 8), ("uint8", "unsigned char", 16)])
def test_narrow_types_are_packed_into_sixteen_bytes(judged, dtype: str, kind: str, count: int) -> None:
    (one,) = judged(source(THREAD, dtype, kind), RECIPE)
    assert f"{{ {kind} at[{count}]; }};" in one.candidate.kernel.source
    assert one.candidate.contract.grid == (f"cdiv(n, block * {count})",)


@pytest.mark.parametrize(
    ("grid", "shorter"),
    [
        ("cdiv(n, 64)", "cdiv(n, 256)"),
        ("(n + block - 1) // block", "cdiv(n, block * 4)"),
        ("(n + 63) // 64", "cdiv(n, 256)"),
        ("cdiv(n * 1 * 1, block)", "cdiv(n * 1 * 1, block * 4)"),
        ("n // 64 + 1", "cdiv(n // 64 + 1, 4)"),
    ],
)
def test_any_grid_that_covers_the_elements_gets_shorter(judged, grid: str, shorter: str) -> None:
    (one,) = judged(source(THREAD, grid=grid), RECIPE)
    assert one.candidate.contract.grid == (shorter,)


ROWS = """
typedef float real;
// /// kernelmate
// sizes = [{ a = 2, b = 3, cols = 41 }, { a = 1, b = 2, cols = 64 }, { a = 1, b = 1, cols = 1 }]
// grid = GRID
// block = 32
// reference = "2 * x + bias"
// [args]
// x = "in float32[a, b, cols]"
// bias = "in float32[cols]"
// y = "out float32[a, b, cols]"
// a = "int32"
// b = "int32"
// cols = "int32"
// ///
__global__ void k(const real* x, const real* bias, real* y, int a, int b, int cols) {
BODY
}
"""


def test_a_total_of_several_sizes_bounds_the_elements(judged) -> None:
    body = """  const int total = a * b * cols;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= total) return;
  y[i] = 2.0f * x[i] + bias[i % cols];"""
    (one,) = judged(ROWS.replace("GRID", '"cdiv(a * b * cols, block)"').replace("BODY", body), RECIPE)
    text = one.candidate.kernel.source
    assert "first + 4 <= total" in text
    assert "const int i = first + j;" in text
    assert "y4.at[j] = 2.0f * x4.at[j] + bias[i % cols];" in text
    assert "struct alignas(16) real_x4 { real at[4]; };" in text


def test_pointers_to_rows_are_met_by_vectors_too(judged) -> None:
    body = """  const real* in = x + (size_t)blockIdx.x * cols;
  real* out = y + (size_t)blockIdx.x * cols;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[c] = 2.0f * in[c] + bias[c];"""
    (one,) = judged(ROWS.replace("GRID", '"a * b"').replace("BODY", body), RECIPE)
    text = one.candidate.kernel.source
    assert "const int cols4 = ((size_t)out | (size_t)in | (size_t)bias) % 16 == 0 ? cols / 4 : 0;" in text
    assert "for (int c4 = threadIdx.x; c4 < cols4; c4 += blockDim.x) {" in text
    rest = "for (int c = 4 * cols4 + threadIdx.x; c < cols; c += blockDim.x) out[c] = 2.0f * in[c] + bias[c];"
    assert rest in text


def test_loops_over_rows_named_in_two_ways_share_their_number_of_vectors(judged) -> None:
    body = """  const real* in = x + (size_t)blockIdx.x * cols;
  float low = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) low = fminf(low, in[c]);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[(size_t)blockIdx.x * cols + c] = 2.0f * in[c] + bias[c] + 0.0f * low;"""
    (one,) = judged(ROWS.replace("GRID", '"a * b"').replace("BODY", body), RECIPE)
    text = one.candidate.kernel.source
    assert "  real* y_row = y + (size_t)blockIdx.x * cols;\n" in text
    assert text.count("const int cols4 =") == 1
    assert text.count("c4 < cols4") == 2
    assert "reinterpret_cast<float4*>(y_row)[c4] = y_row4;" in text


def test_the_loops_of_a_kernel_use_one_type_of_vector(judged) -> None:
    body = """  const real* in = x + (size_t)blockIdx.x * cols;
  real* out = y + (size_t)blockIdx.x * cols;
  float low = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) low = fminf(low, in[c]);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const float twice = 2.0f * in[c];
    out[c] = twice + bias[c] + 0.0f * low;
  }"""
    (one,) = judged(ROWS.replace("GRID", '"a * b"').replace("BODY", body), RECIPE)
    assert "float4" not in one.candidate.kernel.source
    assert one.candidate.kernel.source.count("const real_x4 in4 = reinterpret_cast<const real_x4*>(in)[c4];") == 2


def test_rows_on_another_axis_of_the_grid_stay_there(judged) -> None:
    body = """  const real* in = x + (size_t)blockIdx.y * cols;
  real* out = y + (size_t)blockIdx.y * cols;
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < cols) out[c] = 2.0f * in[c] + bias[c];"""
    (one,) = judged(ROWS.replace("GRID", '["cdiv(cols, block)", "a * b"]').replace("BODY", body), RECIPE)
    assert one.candidate.contract.grid == ("cdiv(cols, block * 4)", "a * b")
    assert "*reinterpret_cast<const float4*>(in + first)" in one.candidate.kernel.source


def test_strided_loops_keep_their_grid(judged) -> None:
    (one,) = judged(source(LOOP, grid="min(cdiv(n, block), 8)"), RECIPE)
    assert one.candidate.contract.grid == ("min(cdiv(n, block), 8)",)


def test_several_statements_are_written_once_and_called_for_vectors_and_the_tail(judged) -> None:
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  // Half of it.\n  const float part = x[i] / 2;\n  y[i] = part + (i >= 0) + part;"
    (one,) = judged(source(body), RECIPE)
    text = one.candidate.kernel.source
    assert (
        "const auto each = [&](float x_i, float& y_i, int i) {\n    // Half of it.\n    const float part = x_i / 2;"
        in text
    )
    assert "each(x4.at[j], y4.at[j], first + j);" in text
    assert "each(x[i], y[i], i);" in text
    assert text.count("/ 2") == 1


def test_loops_with_several_statements_have_a_function_each(judged) -> None:
    head = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
    body = f"{head} {{ const float half_of_it = x[i] / 2; y[i] = half_of_it; }}\n  {head} {{ const float half_of_it = y[i]; y[i] = half_of_it * 2 + 1; }}"
    (one,) = judged(source(body), RECIPE)
    text = one.candidate.kernel.source
    assert "const auto each_0 = [&](float x_i, float& y_i) {" in text
    assert "const auto each_1 = [&](float& y_i) {" in text
    assert text.count("each_1(") == 2


@pytest.mark.parametrize(
    "body",
    [
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = x[i] + y[n - 1 - i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = x[n - 1 - i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) { if (x[i] > 0) y[i] = x[i]; }",
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n - 1) y[i] = x[i];",
        "for (int i = threadIdx.x; i < n; i += 48) y[i] = x[i];",
    ],
)
def test_what_is_not_element_wise_stays(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(source(body)))) == []


def test_elements_that_fill_a_pack_alone_stay(ask) -> None:
    assert list(RECIPE.candidates(ask(source(THREAD, "float32", "float4")))) == []
