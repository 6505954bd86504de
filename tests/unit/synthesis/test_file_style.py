"""Generated text follows the user's file: casts, pointers, braces of single statements, and names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Contract, Kernel
from kernelmate.source import contract_for, load_kernel
from kernelmate.source.folding import width_of
from kernelmate.suggest.replacement import without_own_helpers
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

ROWS = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
NORMED = "def reference(x):\n    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)"
AT = "const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;"
LONG = "{ rows = 6, cols = 900 }, { rows = 3, cols = 7 }"


def text_of(kernel: Kernel, contract: Contract, folder: Path) -> str:
    """The file with the first written kernel in it."""
    bare = without_own_helpers(kernel)
    written = next(kernels_for(trace(contract, folder), bare, contract))
    return placed(bare, contract, written)[0].unit.text


def made(make: Any, folder: Path, body: str, above: str = "") -> str:
    return text_of(*make(ROWS, NORMED, sizes=LONG, body=body, above=above), folder)


def test_casts_are_those_of_the_file(make: Any, tmp_path: Path) -> None:
    own = made(make, tmp_path, "y[(size_t)blockIdx.x * cols] = x[0];")
    assert "_cast<" not in own
    assert "((size_t)x | (size_t)y) % sizeof(" in own
    assert "(const Pack<kPack>*)(x_row + col)" in own
    assert "static_cast<size_t>(" not in made(make, tmp_path, "y[0] = (float)x[0];")
    plain = made(make, tmp_path, "y[static_cast<size_t>(blockIdx.x) * cols] = (float)x[0];")
    assert "reinterpret_cast<size_t>(x)" in plain
    assert "(size_t)x" not in plain


def test_the_star_of_pointers_stands_where_the_file_has_it(make: Any, tmp_path: Path) -> None:
    own = made(make, tmp_path, "const float *row = x + 1; float *out = y; const float *more = row; out[0] = more[0];")
    assert "const float *x_row = " in own
    assert "* x_row" not in own
    assert "const float* x_row = " in made(make, tmp_path, "const float* row = x + 1; y[0] = row[0];")


def test_const_stands_where_the_file_has_it(make: Any, tmp_path: Path) -> None:
    body = "float const* row = x + 1; int const first = 0; float const* more = row; y[first] = more[0];"
    parameters = "float const* x, float* y, int rows, int cols"
    kernel, contract = make(ROWS, NORMED, sizes=LONG, body=body, parameters=parameters)
    own = text_of(kernel, contract, tmp_path)
    assert "float const* __restrict__ x" in own
    assert "float const* x_row = " in own
    assert "int const lane = " in own or "int const tid = " in own
    assert not re.search(r"\bconst (?:int|float|size_t|Pack)\b", own)
    assert "const float* x_row = " in made(make, tmp_path, "const float* row = x + 1; y[0] = row[0];")


@pytest.mark.parametrize(
    ("body", "braced"),
    [
        ("for (int c = 0; c < cols; ++c) y[c] = x[c];", False),
        ("for (int c = 0; c < cols; ++c)\n    y[c] = x[c];", False),
        ("for (int c = 0; c < cols; ++c) { y[c] = x[c]; }", True),
        ("if (cols < 1) return;\n  y[0] = x[0];", True),
    ],
)
def test_braces_of_single_statements_are_those_of_the_file(body: str, braced: bool, make: Any, tmp_path: Path) -> None:
    head, addition = "for (int w = 1; w < kThreads / kWarpSize; ++w)", "value += partial[w];"
    text = " ".join(made(make, tmp_path, body).replace("\n", "@").split())
    between = " {@ " if braced else "@ " if "\n" in body else " "
    assert f"{head}{between}{addition}" in text


@pytest.mark.parametrize(
    ("body", "exit_text", "statement"),
    [
        ("if (cols < 1) return;\n  y[0] = x[0];", "{} return;", "{} partial"),
        ("if (cols < 1)\n    return;\n  y[0] = x[0];", "{}@ return;", "{}@ partial"),
        ("if (cols < 1) {\n    return;\n  }\n  y[0] = x[0];", "{} {{@ return;", "{} {{@ partial"),
        (
            "if (cols < 1) return;\n  for (int c = 0; c < cols; ++c) {\n    y[c] = x[c];\n  }",
            "{} return;",
            "{} partial",
        ),
        ("if (cols < 1)\n    return;\n  if (cols < 2) y[0] = x[0];", "{}@ return;", "{} partial"),
    ],
)
def test_early_exits_and_statements_beside_conditions_are_as_in_the_file(
    body: str, exit_text: str, statement: str, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make({**ROWS}, NORMED, sizes=LONG, body=body, grid="rows + 1")
    text = " ".join(text_of(kernel, contract, tmp_path).replace("\n", "@").split())
    assert exit_text.format("if (row >= rows)") in text
    assert statement.format("if (threadIdx.x % kWarpSize == 0)") in text


def test_no_two_blanks_are_left_where_braces_were(make: Any, tmp_path: Path) -> None:
    args = {
        "a": "in float32[m, k]",
        "b": "in float32[k, n]",
        "c": "out float32[m, n]",
        "m": "int32",
        "n": "int32",
        "k": "int32",
    }
    body = "for (int p = 0; p < k; ++p) c[p] = a[p];"
    text = text_of(*make(args, "a @ b", sizes="{ m = 64, n = 64, k = 64 }", body=body, grid="m"), tmp_path)
    assert not re.search(r"\)  if", text)


def test_names_are_cased_as_in_the_file(make: Any, tmp_path: Path) -> None:
    above = "#define TILE_SIZE 32\n__device__ float addOne(float value) { return value + 1.0f; }\n"
    body = "int rowIdx = blockIdx.x; float rowSum = x[rowIdx]; y[0] = addOne(rowSum + TILE_SIZE);"
    own = made(make, tmp_path, body, above)
    for name in (
        "THREADS",
        "ALL_LANES",
        "xRow",
        "sizeof(",
        "__shfl_xor_sync(",
        "reinterpret_cast<",
        "workRow",
        "sumSq",
    ):
        assert name in own
    for name in ("kThreads", "kAllLanes", "x_row", "sum_sq"):
        assert name not in own
    kept = made(make, tmp_path, "y[0] = x[0];")
    assert "kThreads" in kept
    assert "x_row" in kept


def test_changed_statements_are_wrapped_to_the_files_width(make: Any, tmp_path: Path) -> None:
    text = made(make, tmp_path, "int rowIdx = blockIdx.x; y[(size_t)rowIdx * cols] = x[0];", "#define TILE_SIZE 32\n")
    assert max(map(len, text.split("\n"))) <= width_of(text)
    assert "\n\n\n" not in text


def test_constants_and_functions_of_cuda_are_no_evidence_of_camel_case(make: Any, tmp_path: Path) -> None:
    body = "__shared__ float part[kBlock]; part[threadIdx.x] = x[0]; atomicAdd(&y[0], part[0]);"
    assert "x_row" in made(make, tmp_path, body, "constexpr int kBlock = 128;\n")


def test_helpers_are_named_after_the_kernel_without_the_word_kernel(make: Any, tmp_path: Path) -> None:
    kernel, _ = make(ROWS, NORMED, sizes=LONG)
    path = tmp_path / "kernel.cu"
    path.write_text(path.read_text().replace("void work(", "void norm_kernel("))
    kernel = load_kernel(str(path))
    text = text_of(kernel, contract_for(kernel), tmp_path)
    assert " norm_row(" in text
    assert "norm_kernel(" in text


def test_numbers_are_those_of_the_reference(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    return x * 0.7978845608 + np.sqrt(2 / np.pi)"
    text = text_of(*make(ROWS, reference, sizes=LONG), tmp_path)
    assert "0.7978845608f" in text
    assert "0.7978846f" in text, "a computed number, in the digits that a float has"


def test_blocks_of_one_dimension_are_numbers(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    padded = np.pad(x, ((0, 0), (2, 2)))\n    return sum(padded[:, k : k + x.shape[1]] for k in range(5))"  # fmt: skip
    text = text_of(
        *make(ROWS, reference, sizes="{ rows = 64, cols = 8192 }", grid='cdiv(cols, block)", "rows', body=AT), tmp_path
    )
    assert re.search(r"^// block = \d+$", text, re.MULTILINE)
    assert "left2" in text
    assert "float padded =" not in text


def test_a_launch_by_variables_keeps_the_files_constant(make: Any, tmp_path: Path) -> None:
    kernel, _ = make(ROWS, NORMED, sizes=LONG, above="#define THREADS_PER_BLOCK 128\n")
    path = tmp_path / "kernel.cu"
    launch = "  dim3 grid(r);\n  dim3 block(THREADS_PER_BLOCK);\n  work<<<grid, block>>>(x, y, r, c);\n"
    path.write_text(f"{path.read_text()}\nvoid run(float* x, float* y, int r, int c) {{\n{launch}}}\n")
    kernel = load_kernel(str(path))
    text = text_of(kernel, contract_for(kernel), tmp_path)
    assert "__launch_bounds__(THREADS_PER_BLOCK)" in text
    assert "dim3 block(THREADS_PER_BLOCK);" in text
    assert " THREADS " not in text


def test_a_reciprocal_root_is_written_as_the_baseline_has_it_everywhere(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    return x * (1 / np.sqrt(x * x + 1))"
    own = text_of(*make(ROWS, reference, body="y[0] = rsqrtf(x[0]);"), tmp_path)
    assert "rsqrtf(" in own
    assert "/ sqrtf(" not in own


@pytest.mark.parametrize("name", ["norm_rows", "row_norm", "norm"])
def test_the_function_of_a_row_repeats_no_word_of_the_kernels_name(name: str, make: Any, tmp_path: Path) -> None:
    make(ROWS, NORMED, sizes=LONG)
    path = tmp_path / "kernel.cu"
    path.write_text(path.read_text().replace("void work(", f"void {name}("))
    kernel = load_kernel(str(path))
    assert " norm_row(" in text_of(kernel, contract_for(kernel), tmp_path)


def test_casts_of_host_code_do_not_outweigh_those_of_the_kernel(make: Any, tmp_path: Path) -> None:
    above = "inline float half_of(int n) { return static_cast<float>(n) / 2; }\n\n"
    text = made(make, tmp_path, "  y[0] = x[(size_t)blockIdx.x * cols];", above)
    assert "(size_t)" in text
    assert text.count("static_cast") == 1


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("const int token = blockIdx.x;", "token"),
        ("int token = threadIdx.x + blockDim.x * blockIdx.x;\n  if (token >= rows) return;", "token"),
        ("const int token = blockIdx.x * BLOCK + threadIdx.x;\n  if (token < rows) return;", "token"),
        ("const int token = threadIdx.x + blockDim.x * blockIdx.x;", "row"),
        ("const int bid = blockIdx.x;", "row"),
    ],
)
def test_the_number_of_a_row_has_the_name_that_the_kernel_gave_it(
    start: str, name: str, make: Any, tmp_path: Path
) -> None:
    text = made(make, tmp_path, f"  {start}")
    assert re.search(rf" norm_row\(.*{name}\)|work_row\(.*\b{name}\)", text.replace("\n", " "))
    assert re.search(rf"const (?:int|size_t) {name} = blockIdx\.x;", text)


def test_positions_of_threads_keep_their_names_however_they_are_computed(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[h, w]", "y": "out float32[h, w]", "h": "int32", "w": "int32"}
    reference = (
        "def reference(x):\n    p = np.pad(x, 1, mode='edge')\n"
        "    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x"
    )
    body = "  int nCol = threadIdx.x + blockIdx.x * TILE_W;\n  int nRow = blockDim.y * blockIdx.y + threadIdx.y;"
    text = text_of(
        *make(args, reference, sizes="{ h = 64, w = 64 }", grid='cdiv(w, 16)", "cdiv(h, 8)', body=body), tmp_path
    )
    assert "const int nCol = blockIdx.x * blockDim.x + threadIdx.x;" in text
    assert "const int nRow = blockIdx.y * blockDim.y + threadIdx.y;" in text
