"""Shapes and directions that subscripts show, as they stand in an inferred contract."""

from __future__ import annotations

import pytest

from kernelmate.records import Argument
from kernelmate.source import find_kernels, infer_contract, text_unit

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741 -- as the kernels call it
RC = "int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;"


def inferred(parameters: str, body: str) -> dict[str, str]:
    """Direction and shape of each array of a kernel."""
    (kernel,) = find_kernels(text_unit(f"__global__ void k({parameters}) {{ {body} }}"))

    def told(argument: Argument) -> str:
        return f"{argument.direction} {', '.join(argument.shape)}"

    return {one.name: told(one) for one in infer_contract(kernel).args if one.direction is not None}


WIDE = """#define FLOAT4(v) (reinterpret_cast<float4*>(&(v))[0])
#define LOAD(v) (*(float4*)&(v))
"""


@pytest.mark.parametrize(
    "body",
    [
        "float4 v = FLOAT4(x[i]); v.x *= 2; FLOAT4(y[i]) = v;",
        "float4 v = LOAD(x[4 * i]); LOAD(y[4 * i]) = v;",
        "float4* a = reinterpret_cast<float4*>(x); float4* b = (float4*)y; b[i] = a[i];",
        "float4 v = *reinterpret_cast<float4*>(x + 4 * i); *(float4*)(y + 4 * i) = v;",
        "float4 v = *(float4*)&x[4 * i]; ((float4*)y)[0] = v;",
        "float* p = x + i; float* q = &y[i]; *q = 2 * *p;",
        "float v = *(x + i); *(y + i) = v * *(x + i);",
        "*y = x[i] * *x;",
        "(y[i]) = (x[i]);",
    ],
)
def test_elements_that_are_read_through_casts_and_pointers_are_only_read(body: str) -> None:
    text = f"{WIDE}__global__ void k(float* x, float* y, int n) {{ {I} if (i < n) {{ {body} }} }}"
    (kernel,) = find_kernels(text_unit(text))
    assert [one.direction for one in infer_contract(kernel).args[:2]] in (["in", "inout"], ["in", "out"])


@pytest.mark.parametrize(
    "body",
    [
        "float4& v = FLOAT4(x[i]); v.x = 2; FLOAT4(y[i]) = v;",
        "LOAD(x[4 * i]).x = 1; LOAD(y[4 * i]) = LOAD(x[4 * i]);",
        "float4* a = (float4*)x; y[i] = a[i].x; a[i] = make_float4(0, 0, 0, 0);",
        "*x += y[i]; y[i] = *x;",
        "float* p = x + i; y[i] = *p; *p++ = 0;",
        "float* p = x + i; y[i] = *p; change(p);",
        "y[i] = (x[i])++;",
        "y[i] = atomicAdd(x + i, 1.0f);",
        "int v = *(x + i)--; y[i] = v;",
    ],
)
def test_elements_that_are_changed_through_casts_and_pointers_are_not_only_read(body: str) -> None:
    text = f"{WIDE}__global__ void k(float* x, float* y, int n) {{ {I} if (i < n) {{ {body} }} }}"
    (kernel,) = find_kernels(text_unit(text))
    assert infer_contract(kernel).args[0].direction == "inout"


MATRIX, VECTOR = "const float* x, float* y, int rows, int cols", "const float* x, float* y, int n"


@pytest.mark.parametrize(
    ("parameters", "body", "wanted"),
    [
        ("const float* a, const float* x, float* y, int rows, int cols",
         "int r = blockIdx.x * 16 + threadIdx.x; if (r < rows) { float s = 0; for (int c = 0; c < cols; ++c) s += a[r * cols + c] * x[c]; y[r] = s; }",
         {"a": "in rows, cols", "x": "in cols", "y": "out rows"}),
        (VECTOR, I + " if (i >= n) return; y[i] = 2 * x[i];", {"x": "in n", "y": "out n"}),
        (MATRIX, RC + " if (r < rows && c < cols) y[(size_t)c * rows + r] = x[r * cols + c];", {"x": "in rows, cols", "y": "out cols, rows"}),
        ("const float* x, const float* b, float* y, int rows, int cols",
         I + " if (i < rows * cols) { int c = i % cols; y[i] = x[i] + b[c]; }", {"x": "in rows, cols", "b": "in cols", "y": "out rows, cols"}),
        ("const float* x, float* y, int b, int rows, int cols",
         "int z = blockIdx.z, r = blockIdx.y, c = threadIdx.x; if (z < b && r < rows && c < cols) { int at = (z * rows + r) * cols + c; y[at] = x[at]; }",
         {"x": "in b, rows, cols", "y": "out b, rows, cols"}),
        (VECTOR, I + " if (i < n) y[n - 1 - i] = x[i];", {"x": "in n", "y": "out n"}),
        (VECTOR, I + " for (; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];", {"x": "in n", "y": "out n"}),
        (VECTOR, I + " float* z = y; if (i < n) { z[i] = x[i]; }", {"x": "in n", "y": "out n"}),
        (MATRIX, "int r = blockIdx.x; const float* a = x + r * cols; float* __restrict__ b = &y[r * cols]; if (r < rows) for (int c = threadIdx.x; c < cols; c += blockDim.x) b[c] = a[c];",
         {"x": "in rows, cols", "y": "out rows, cols"}),
        (MATRIX, "int r = blockIdx.x; x += r * cols; if (r < rows) for (int c = threadIdx.x; c < cols; c += blockDim.x) y[r * cols + c] = x[c];",
         {"x": "in rows, cols", "y": "out rows, cols"}),
        (VECTOR, I + " if (i < n) { const float* a = x + 8 * i; float s = 0; for (int k = 0; k < 8; k++) s += a[k]; y[i] = s; }",
         {"x": "in n, 8", "y": "out n"}),
        (VECTOR, I + " if (i < n) { float s = 0; for (int k = 0; k < 9; k++) s += x[8 * i + k]; y[i] = s; }",
         {"x": "in n", "y": "out n"}),
        (VECTOR, I + " if (i < n) y[i] = x[3 * i] + x[3 * i + 2];", {"x": "in n, 3", "y": "out n"}),
        ("const float* x, const float* box, float* y, int n",
         I + " if (i < n) y[i] = fminf(fmaxf(x[i], box[0]), box[3]);", {"x": "in n", "box": "in 4", "y": "out n"}),
        ("const float* x, float* y, int n", "if (x[1] > 0) { y[0] = x[0]; y[1] = x[2]; }", {"x": "in 3", "y": "inout 2"}),
        ("const float* x, float* y, int n", "y[1] = x[0]; y[0] = x[2] + n;", {"x": "in 3", "y": "out 2"}),
        ("const float* x, float* y, int n", "y[2] = x[0]; y[0] = x[2] + n;", {"x": "in 3", "y": "inout 3"}),
        ("float* x, float* y, int n", I + " if (i < n) y[i] = fmaxf(x[i], 0.0f);", {"x": "in n", "y": "out n"}),
        (VECTOR, "CUDA_1D_KERNEL_LOOP(i, n) { y[i] = x[i]; }", {"x": "in n", "y": "out n"}),
    ],
)  # fmt: skip
def test_sums_of_bounded_indices_give_the_shape_and_stores_alone_an_output(
    parameters: str, body: str, wanted: dict[str, str]
) -> None:
    assert inferred(parameters, body) == wanted


@pytest.mark.parametrize(
    "store",
    [
        "if (i < n) y[i] += x[i];",
        "if (i < n) y[i] = y[i] + x[i];",
        "if (i < n) atomicAdd(&y[i], x[i]);",
        "if (i < n && x[i] > 0) y[i] = x[i];",
        "if (i < n) { if (x[i] > 0) y[i] = x[i]; }",
        "if (i < n) { if (x[i] == 0) return; y[i] = x[i]; }",
        "if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i + 1];",
        "if (i < n && i % 2 == 0) y[i] = x[i];",
        "if (i < n) y[2 * i] = x[i];",
        "if (i < n && i != 3) y[i] = x[i];",
        "if (i == 0) y[i] = x[i];",
        "if (i < n) y[i]++;",
        "if (i < n) y[(int)x[i]] = 1;",
        "float* z = y; if (i < n) { z[i] = y[i]; }",
        "float* z = y; z = z + n; if (i < n) { z[i] = x[i]; }",
        "if (i < n) { ++y[i]; }",
        "if (i < n) { y[i] <<= 1; }",
        "if (i < n) { float& r = y[i]; r = x[i]; }",
        "if (i < n) { change(y[i]); }",
        "while (i < n) { if (x[i] > 1) break; y[i] = x[i]; i += 1; }",
        "for (int j = 1; j < n; ++j) y[j] = x[j];",
    ],
)  # fmt: skip
def test_an_array_that_may_keep_or_read_an_element_stays_read_and_written(store: str) -> None:
    assert inferred(VECTOR, f"{I} {store}")["y"].split()[0] == "inout"


@pytest.mark.parametrize("index", ["i + n", "i * n", "i / 2", "i * 3 + n", "x_of(i)", "i + (", "r * cols + c"])
def test_a_subscript_of_another_form_leaves_the_array_all_sizes(index: str) -> None:
    body = f"int i = threadIdx.x; if (i < m) y[i] = x[{index}];"
    assert inferred("const float* x, float* y, int n, int m", body)["x"] == "in n, m"


def test_a_member_of_a_parameters_name_is_no_use_of_it() -> None:
    assert inferred(
        "const float* x, float* y, int n", "int i = threadIdx.x + threadIdx.y; if (i < n) y[i] = x[i];"
    ) == {
        "x": "in n",
        "y": "out n",
    }


ROWS_OF_N = (
    "template <int N> __global__ void k(const float* x, float* y, int rows) { int r = blockIdx.x * blockDim.x + threadIdx.x; "
    "if (r >= rows) return; float s = 0; for (int c = 0; c < N; ++c) s += x[r * N + c]; for (int c = 0; c < N; ++c) y[r * N + c] = x[r * N + c] / s; }\n"
)


@pytest.mark.parametrize(
    ("launches", "wanted"),
    [
        ("k<64><<<8, 256>>>(x, y, rows);", ("rows", "64")),
        ("k<64><<<8, 256>>>(x, y, rows); k<32><<<8, 256>>>(x, y, rows);", ("rows",)),
    ],
    ids=["one instance", "instances of two lengths"],
)
def test_a_template_argument_is_a_side_where_all_instances_have_it(launches: str, wanted: tuple[str, ...]) -> None:
    text = ROWS_OF_N + f"void f(float* x, float* y, int rows) {{ {launches} }}\n"
    (kernel,) = find_kernels(text_unit(text))
    contract = infer_contract(kernel)
    assert [one.shape for one in contract.args if one.shape is not None] == [wanted, wanted]


def test_ticks_of_a_clock_are_whole_numbers_of_64_bits() -> None:
    (kernel,) = find_kernels(text_unit("__global__ void k(clock_t* t) { t[0] = clock(); }"))
    assert infer_contract(kernel).args[0].dtype == "int64"


@pytest.mark.parametrize("pitch", ["pitch", "stride"])
@pytest.mark.parametrize("subscript", ["r * {0} + c", "c + r * {0}", "{0} * r + c"])
def test_the_length_of_a_row_in_memory_is_the_size_that_its_index_is_below(pitch: str, subscript: str) -> None:
    body = f"{RC} if (r >= height || c >= width) return; y[{subscript.format(pitch)}] = x[{subscript.format(pitch)}];"
    text = f"__global__ void k(const float* x, float* y, int width, int height, int {pitch}) {{ {body} }}"
    (kernel,) = find_kernels(text_unit(text))
    contract = infer_contract(kernel)
    found = {one.name: one.shape for one in contract.args if one.direction is not None}
    assert found == {"x": ("height", "width"), "y": ("height", "width")}
    assert next(one.value for one in contract.args if one.name == pitch) == "width"
