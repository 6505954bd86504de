"""Written kernels as a diff shows them: no needless guards, grids and names that the file has, and true comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate.source.folding import folded
from kernelmate.source.launch_style import in_style
from kernelmate.synthesis.kept_text import with_own_locals
from kernelmate.synthesis.own_grids import fits_side
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.wide_sizes import with_wide_indices
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

COLUMNS = {"x": "in float32[rows, cols]", "y": "out float32[cols]", "rows": "int32", "cols": "int32"}
VARIANCE_BODY = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  float m = 0.0f, s = 0.0f;\n  for (int r = 0; r < rows; ++r) m += x[r * cols + c] / rows;\n  for (int r = 0; r < rows; ++r) s += (x[r * cols + c] - m) * (x[r * cols + c] - m);\n  y[c] = s / rows;"  # fmt: skip
COLUMN_BODY = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  float s = 0.0f;\n  for (int r = 0; r < rows; ++r) s += x[r * cols + c];\n  y[c] = s;"  # fmt: skip


@pytest.mark.parametrize(
    "reference", ["x.sum(axis=0)", "x.argmax(axis=0).astype(np.float32)", "x.var(axis=0)"], ids=["sum", "argmax", "var"]
)
def test_a_warp_with_a_column_for_each_lane_tests_no_lane_and_shuffles_nothing(
    reference: str, make: Any, tmp_path: Path
) -> None:
    made = make(COLUMNS, reference, sizes="{ rows = 4096, cols = 64 }", grid="cdiv(cols, block)", body=COLUMN_BODY)
    texts = [one for one in kernels_for(trace(made[1], tmp_path), *made) if one.schedule.startswith("columns-32")]
    assert texts
    for one in texts:
        assert "if (threadIdx.x % 32 < " not in one.helpers, one.helpers
        assert "__shfl" not in one.helpers + one.definition
        assert "shuffle" not in one.why + one.definition


def test_columns_of_a_warp_are_right(make: Any, session: Session) -> None:
    sizes = "{ rows = 256, cols = 40 }, { rows = 3, cols = 7 }"
    made = make(COLUMNS, "x.var(axis=0)", sizes=sizes, grid="cdiv(cols, block)", body=VARIANCE_BODY)
    assert any("columns" in one for one in assert_judged_right(session, made[0]))


def test_a_reason_names_the_shuffles_of_narrow_columns(make: Any, tmp_path: Path) -> None:
    made = make(COLUMNS, "x.sum(axis=0)", sizes="{ rows = 512, cols = 64 }", grid="cdiv(cols, block)")
    for one in kernels_for(trace(made[1], tmp_path), *made):
        assert ("shuffles" in one.why) == ("__shfl" in one.helpers), one.why
        assert not re.search(r"% 32 < 32", one.helpers)


NORM_BODY = "  int row = blockIdx.x;\n  const float* xRow = x + row * cols;\n  float rowMax = -INFINITY;\n  for (int c = 0; c < cols; ++c) rowMax = fmaxf(rowMax, xRow[c]);\n  y[row] = rowMax;"  # fmt: skip


def test_names_of_the_replaced_kernel_are_free_in_the_case_of_its_file(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    made = make(args, "x.max(axis=1)", sizes="{ rows = 64, cols = 4096 }", body=NORM_BODY)
    text = placed(*made, next(kernels_for(trace(made[1], tmp_path), *made)))[0].unit.text
    assert "rowMax" in text
    assert not re.search(r"\b(?:row_max|x_row)\b", text), text


@pytest.mark.parametrize(("name", "local"), [("scaleRows", "xPack"), ("scale_rows", "x_pack")])
def test_the_name_of_a_kernel_tells_the_case_where_its_locals_do_not(
    name: str, local: str, make: Any, tmp_path: Path
) -> None:
    made = make(
        {"x": "in float32[n]", "y": "out float32[n]", "n": "int32"},
        "x * 2",
        sizes="{ n = 65536 }",
        grid="cdiv(n, block)",
    )
    path = Path(made[0].unit.path)
    path.write_text(path.read_text().replace("work(", f"{name}("))
    kernel = load_kernel(path)
    contract = contract_for(kernel)
    text = placed(kernel, contract, next(kernels_for(trace(contract, tmp_path), kernel, contract)))[0].unit.text
    assert re.search(rf"\b{local}\b", text), text


def test_the_rest_of_a_statement_begins_with_its_tabs() -> None:
    line = "\t\tfor (int col = kWarpSize * kKept + lane * kPack; col < columns; col += kWarpSize * kPack) {"
    first, second = folded(line, 80)
    assert first.startswith("\t\tfor")
    assert second == "\t\t     col += kWarpSize * kPack) {"


STENCIL = "def reference(u):\n    v = u.copy()\n    v[1:-1, 1:-1, 1:-1] = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 1:-1, 2:]\n    return v"  # fmt: skip
GROUPS = "def reference(x, groups):\n    v = x.reshape(batch_of(x), groups, -1)\n    return (v / np.sqrt((v * v).mean(axis=2, keepdims=True))).reshape(x.shape)\n\n\ndef batch_of(x):\n    return x.shape[0]"  # fmt: skip
OWN_GRIDS = {
    "a stencil in three dimensions": (
        {"u": "in float32[nz, ny, nx]", "v": "out float32[nz, ny, nx]", "nx": "int32", "ny": "int32", "nz": "int32"},
        STENCIL, "{ nz = 16, ny = 32, nx = 64 }", 'cdiv(nx, 32)", "cdiv(ny, 4)", "cdiv(nz, 2)', "[32, 4, 2]",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  int j = blockIdx.y * blockDim.y + threadIdx.y;\n  int k = blockIdx.z * blockDim.z + threadIdx.z;",
        ["cdiv(nx, 32)", "cdiv(ny, 8)", "nz"], ["const int i = blockIdx.x", "const int j = blockIdx.y", "const int k = blockIdx.z;"],
    ),
    "a permutation of three axes": (
        {"x": "in float32[n, c, hw]", "y": "out float32[n, hw, c]", "n": "int32", "c": "int32", "hw": "int32"},
        "x.transpose(0, 2, 1)", "{ n = 4, c = 64, hw = 256 }", 'cdiv(hw, block)", "c", "n', "256",
        "  int p = blockIdx.x * blockDim.x + threadIdx.x;\n  int ch = blockIdx.y;\n  int image = blockIdx.z;",
        ["cdiv(hw, 32)", "cdiv(c, 32)", "n"], ["const int image = blockIdx.z;", "const int p = ", ", ch = "],
    ),
    "groups of images": (
        {"x": "in float32[batch, channels, pixels]", "y": "out float32[batch, channels, pixels]", "batch": "int32", "channels": "int32", "pixels": "int32", "groups": "int32"},
        GROUPS, "{ batch = 4, channels = 32, pixels = 256, groups = 8 }", 'groups", "batch', "128", "",
        ["groups", "batch"], ["static_cast<size_t>(blockIdx.y) * groups + blockIdx.x;"],
    ),
    "a matrix product": (
        {"a": "in float32[m, k]", "b": "in float32[k, n]", "c": "out float32[m, n]", "m": "int32", "n": "int32", "k": "int32"},
        "a @ b", "{ m = 128, n = 128, k = 128 }", 'cdiv(n, 16)", "cdiv(m, 16)', "[16, 16]", "",
        ["cdiv(n, 32)", "cdiv(m, 32)"], ["first_row = blockIdx.y * kTileM;", "first_column = blockIdx.x * kTileN;"],
    ),
}  # fmt: skip


def test_the_last_side_of_a_grid_needs_no_parameter(make: Any, tmp_path: Path) -> None:
    args, reference, sizes, grid, block, _, sides, lines = OWN_GRIDS["groups of images"]
    args = {name: entry for name, entry in args.items() if name != "batch"}
    more = 'require = ["channels % groups == 0", "groups > 0"]'
    made = make(args, reference, sizes=sizes, grid=grid, block=block, more=more)
    one = next(kernels_for(trace(made[1], tmp_path), *made))
    assert [*one.grid] == sides
    assert all(line in one.definition for line in lines), one.definition


@pytest.mark.parametrize("name", OWN_GRIDS)
def test_a_grid_of_several_sides_stays_one(name: str, make: Any, tmp_path: Path) -> None:
    args, reference, sizes, grid, block, body, sides, lines = OWN_GRIDS[name]
    more = 'require = ["channels % groups == 0", "groups > 0"]' if "groups" in args else ""
    made = make(args, reference, sizes=sizes, grid=grid, block=block, body=body, more=more)
    one = next(kernels_for(trace(made[1], tmp_path), *made))
    assert [*one.grid] == sides
    assert not re.search(r"blockIdx\.x [/%]", one.definition), one.definition
    assert all(line in one.definition for line in lines), one.definition


@pytest.mark.parametrize(("blocks", "own", "fits"), [(8, 8, True), (60000, 60000, True), (16, 8, True), (16, 1, False), (60000, 30000, False)])  # fmt: skip
def test_a_second_side_may_grow_where_its_limit_is_far(blocks: int, own: int, fits: bool) -> None:
    assert fits_side(blocks, own) is fits


def test_the_threads_of_a_template_stay_its_parameter(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
    reference = "def reference(x):\n    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6)"
    sizes = "{ rows = 64, cols = 1024 }, { rows = 3, cols = 7 }"
    kernel, _ = make(args, reference, sizes=sizes, body="  __shared__ float partial[THREADS];")
    path = Path(kernel.unit.path)
    host = "void run(const float* x, float* y, int rows, int cols) { work<128><<<rows, 128>>>(x, y, rows, cols); }"
    path.write_text(
        path.read_text()
        .replace("__global__", "template <int THREADS>\n__global__")
        .replace("// reference", '// instances = ["work<128>"]\n// reference')
        + host
    )
    kernel = load_kernel(path)
    contract = contract_for(kernel)
    texts = [one for one in kernels_for(trace(contract, tmp_path), kernel, contract) if one.block == 128]
    text = next(placed(kernel, contract, one)[0].unit.text for one in texts if "block" in one.schedule)
    assert "__launch_bounds__(THREADS)" in text
    assert "THREADS / kWarpSize" in text
    assert 'static_assert(THREADS % kWarpSize == 0, "whole groups of threads");' in text
    assert "work<128><<<rows, 128>>>" in text
    assert "kThreads" not in text
    assert "only the instances" not in text


def test_a_column_has_the_name_that_the_kernel_gave_it(make: Any, tmp_path: Path) -> None:
    body = "  int col = blockIdx.x * blockDim.x + threadIdx.x;\n  if (col >= cols) return;"
    made = make(COLUMNS, "x.sum(axis=0)", sizes="{ rows = 512, cols = 64 }", grid="cdiv(cols, block)", body=body)
    text = next(kernels_for(trace(made[1], tmp_path), *made)).definition
    assert "const int col = blockIdx.x * kColumns" in text
    assert "y[col] = " in text


REASONS = {
    "columns": (COLUMNS, "x.sum(axis=0)", "{ rows = 512, cols = 64 }", "cdiv(cols, block)"),
    "rows": (COLUMNS | {"y": "out float32[rows]"}, "x.sum(axis=1)", "{ rows = 64, cols = 2048 }", "rows"),
    "long rows": (COLUMNS | {"y": "out float32[rows]"}, "x.max(axis=1)", "{ rows = 4, cols = 60000 }", "rows"),
    "scan": (COLUMNS | {"y": "out float32[rows, cols]"}, "np.cumsum(x, axis=1)", "{ rows = 64, cols = 1024 }", "rows"),
    "map": (COLUMNS | {"y": "out float32[rows, cols]"}, "x * 2", "{ rows = 64, cols = 1024 }", "rows"),
    "transposed": (COLUMNS | {"y": "out float32[cols, rows]"}, "x.T * 2", "{ rows = 64, cols = 1024 }", "rows"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_names_only_what_the_text_has(name: str, make: Any, tmp_path: Path) -> None:
    args, reference, sizes, grid = REASONS[name]
    made = make(args, reference, sizes=sizes, grid=grid)
    for one in kernels_for(trace(made[1], tmp_path), *made):
        text = re.sub(r"//[^\n]*", "", one.helpers + one.definition)
        assert "shuffle" not in one.why or "__shfl" in text, one.why
        assert "shared memory" not in one.why or "__shared__" in text, one.why
        assert "packs of" not in one.why or "Pack" in text, one.why
        checked = re.findall(r"reinterpret_cast<size_t>\((\w+)\)", text)
        packed = re.findall(r"\*>\((\w+?)(?:_row)?(?: \+|\))", text)
        assert {*checked} <= {*packed} | {"row_data", "kept"}, (checked, packed, text)


def placed_text(path: Path, text: str, schedule: str = "") -> str:
    """Returns a file's text after the first written kernel, of the given schedule, took the place of its own."""
    path.write_text(text)
    kernel = load_kernel(path)
    contract = contract_for(kernel)
    texts = kernels_for(trace(contract, path.parent), kernel, contract)
    one = next(one for one in texts if one.schedule.startswith(schedule))
    return placed(kernel, contract, one)[0].unit.text


def contract_of(sizes: str, grid: str, block: str, reference: str, *args: str) -> str:
    """Returns a contract block."""
    lines = [f"sizes = [{sizes}]", f"grid = {grid}", f"block = {block}", f'reference = "{reference}"', "[args]", *args]
    return "\n".join(f"// {line}" for line in ["/// kernelmate", *lines, "///"]) + "\n"


PRODUCT = contract_of(
    "{ M = 256, N = 256, K = 256 }, { M = 37, N = 53, K = 29 }",
    '["cdiv(N, 16)", "cdiv(M, 16)"]',
    "[16, 16]",
    "A @ B",
    'A = "in float32[M, K]"',
    'B = "in float32[K, N]"',
    'C = "out float32[M, N]"',
    'M = "int32"',
    'N = "int32"',
    'K = "int32"',
)


def test_each_side_of_a_launch_has_the_name_of_its_own_tile(tmp_path: Path) -> None:
    text = f"""{PRODUCT}__global__ void mm(const float* A, const float* B, float* C, int M, int N, int K) {{
  C[0] = A[0] * B[0];
}}
void run(const float* A, const float* B, float* C, int M, int N, int K) {{
  dim3 block(16, 16);
  dim3 grid((N + 15) / 16, (M + 15) / 16);
  mm<<<grid, block>>>(A, B, C, M, N, K);
}}
"""
    text = placed_text(tmp_path / "mm.cu", text, "contraction-32x32")
    assert "blockIdx.x * kTileN" in text
    assert "dim3 grid((N + kTileN - 1) / kTileN, (M + kTileM - 1) / kTileM);" in text


ROW_ARGS = ('x = "in float32[rows, cols]"', 'y = "out float32[rows]"', 'rows = "{}"', 'cols = "{}"')


def row_sums(
    kind: str = "int", above: str = "", comment: str = "// Sums rows.", blocks: str = "(rows + 127) / 128"
) -> str:
    """Returns a file with a kernel that sums rows, one thread for each, and its launch."""
    args = [one.format("int64" if "64" in kind else "int32") for one in ROW_ARGS]
    contract = contract_of(
        "{ rows = 64, cols = 1024 }, { rows = 3, cols = 7 }", '"cdiv(rows, block)"', "128", "x.sum(axis=1)", *args
    )
    closing = "}  // namespace\n" if above else ""
    return f"""{above}{contract}{comment}
__global__ void row_sums(const float* x, float* y, {kind} rows, {kind} cols) {{
  {kind} row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float total = 0.0f;
  for ({kind} j = 0; j < cols; ++j) total += x[row * cols + j];
  y[row] = total;
}}
{closing}
void run(const float* x, float* y, {kind} rows, {kind} cols) {{
  const int blocks = {blocks};
  row_sums<<<blocks, 128>>>(x, y, rows, cols);
}}
"""


def test_functions_in_an_unnamed_namespace_are_not_static(tmp_path: Path) -> None:
    text = placed_text(tmp_path / "a.cu", row_sums(above="namespace {\n"))
    assert "\n__device__ __forceinline__ float warp_sum(" in text
    assert "static __device__" not in text
    assert "static __device__" in placed_text(tmp_path / "b.cu", row_sums())


def test_a_launch_keeps_the_conversion_of_its_number_of_blocks(tmp_path: Path) -> None:
    text = row_sums("int64_t", blocks="static_cast<int>((rows + 127) / 128)")
    text = placed_text(tmp_path / "a.cu", f"#include <cstdint>\n{text}")
    assert re.search(r"const int blocks = static_cast<int>\(\(rows \+ .*\)\);", text), text


def test_comments_are_written_as_the_others_of_the_file(tmp_path: Path) -> None:
    text = placed_text(tmp_path / "a.cu", row_sums(comment="/* Sums rows. */"))
    code = "\n".join(line for line in text.split("\n") if not line.startswith("// "))
    assert "/* Packed accesses need aligned rows; other rows go element by element. */" in code
    assert "//" not in code.replace("// ///", "")
    assert "/*" not in placed_text(tmp_path / "b.cu", row_sums())


PLACES = '["cdiv(cols, 16)", "cdiv(rows, 16)"]'
TRANSPOSED = contract_of(
    "{ rows = 512, cols = 256 }, { rows = 37, cols = 53 }",
    PLACES,
    "[16, 16]",
    "x.T",
    'x = "in float32[rows, cols]"',
    'y = "out float32[cols, rows]"',
    'rows = "int32"',
    'cols = "int32"',
).replace("// [args]", '// instances = ["flip<float, 16>"]\n// [args]')
FLIP = f"""{TRANSPOSED}template <typename T, int SIDE>
__global__ void flip(const T* x, T* y, int rows, int cols) {{
  int c = blockIdx.x * SIDE + threadIdx.x;
  int r = blockIdx.y * SIDE + threadIdx.y;
  if (c < cols && r < rows) y[c * rows + r] = x[r * cols + c];
}}
void run(const float* x, float* y, int rows, int cols) {{
  constexpr int SIDE = 16;
  dim3 block(SIDE, SIDE);
  dim3 grid((cols + SIDE - 1) / SIDE, (rows + SIDE - 1) / SIDE);
  flip<float, SIDE><<<grid, block>>>(x, y, rows, cols);
}}
"""


def test_tiles_are_measured_by_the_template_parameter_of_the_block(tmp_path: Path) -> None:
    text = placed_text(tmp_path / "flip.cu", FLIP, "permutation-tile")
    assert "constexpr int kTile = 2 * SIDE;" in text.replace("TILE", "kTile")
    assert "__shared__ T tile[" in text
    assert "only the instances" not in text
    assert 'static_assert(SIDE % 2 == 0, "whole tiles");' in text
    assert "dim3 block(2 * SIDE, SIDE / 2);" in text
    assert re.search(r"\(cols \+ 2 \* SIDE - 1\) / \(2 \* SIDE\),\s+\(rows \+ 2 \* SIDE - 1\)", text)


def test_tiles_that_a_template_parameter_measures_are_right(tmp_path: Path, session: Session) -> None:
    path = tmp_path / "flip.cu"
    path.write_text(FLIP)
    assert any("permutation" in one for one in assert_judged_right(session, load_kernel(path)))


@pytest.mark.parametrize("opening", ["(\n    ", "("], ids=["below", "beside"])
def test_a_parameter_for_each_line_stays_so(opening: str, make: Any, tmp_path: Path) -> None:
    apart = "    " if opening == "(\n    " else " " * len("__global__ void work(")
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    kernel, _ = make(args, "x.sum(axis=1)", sizes="{ rows = 64, cols = 1024 }")
    path = Path(kernel.unit.path)
    head, _, rest = path.read_text().partition("work(")
    parameters, _, body = rest.partition(")")
    path.write_text(f"{head}work{opening}{f',{chr(10)}{apart}'.join(parameters.split(', '))}){body}")
    text = placed_text(path, path.read_text())
    inner = r"\n    " if opening == "(\n    " else ""
    assert re.search(rf"work\({inner}const float\* __restrict__ x,\n +float\* __restrict__ y,\n +int rows,\n +int cols\) ?{{", text), text  # fmt: skip


def test_a_launch_outside_the_namespace_qualifies_the_warp_size(tmp_path: Path) -> None:
    text = (
        row_sums(above="namespace ops {\n")
        .replace("  row_sums<<<", "  ops::row_sums<<<")
        .replace("}  // namespace", "}")
    )
    text = text.replace("  const int blocks", "  const int threads = 128;\n  const int blocks").replace("127) / 128", "threads - 1) / threads")  # fmt: skip
    text = placed_text(tmp_path / "a.cu", text.replace("<<<blocks, 128>>>", "<<<blocks, threads>>>"))
    assert "threads / ops::kWarpSize - 1) / (threads / ops::kWarpSize);" in text


def test_a_size_keeps_its_name_and_its_macro(make: Any) -> None:
    above, body = "#define POOL 2\n", "  int outW = cols / POOL;\n  y[0] = x[outW];"
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
    kernel, _ = make(args, "x.sum(axis=1)", body=body, above=above)
    text = "{\n  const int columns = cols / 2;\n  y[columns] = (cols / 2) + columns;\n}"
    kept = "{\n  const int outW = cols / POOL;\n  y[outW] = outW + outW;\n}"
    assert with_own_locals(kernel, text, "") == kept
    assert with_own_locals(kernel, text.replace("y[", "outW["), "") == text.replace("y[", "outW[")


def test_a_statement_breaks_outside_parentheses_if_that_takes_no_more_lines() -> None:
    line = "    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * (x * x * x))));"
    assert folded(line, 80)[0] == "    return 0.5f * x *"


def test_an_index_of_a_longer_type_keeps_its_lines_aligned(make: Any) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows]", "rows": "int64", "cols": "int64"}
    kernel, _ = make(args, "x.sum(axis=1)", parameters="const float* x, float* y, long long rows, long long cols")
    text = "{\n  const size_t row = static_cast<size_t>(blockIdx.x) * 4 +\n                     threadIdx.x / 32;\n  if (row >= rows) return;\n}"  # fmt: skip
    first, second = with_wide_indices(kernel, text, "")[0].split("\n")[1:3]
    assert first.startswith("  const long long row = static_cast<long long>(")
    assert second.index("threadIdx") == first.index("static_cast")


def test_a_launch_whose_configuration_begins_a_line_is_wrapped_below_it() -> None:
    before = "  work_with_a_long_name<__nv_bfloat16, 64>\n      <<<rows, 256, 0, stream>>>(x, y, rows, cols);\n"
    after = before.replace("<<<rows,", "<<<(rows * cols * 100 + rows * 20 + 2047) / 2048,").replace("cols);", "cols, more, and_more, and_others);")  # fmt: skip
    for line in in_style(before, after).split("\n"):
        assert len(line) <= 100, line
        assert len(line) - len(line.lstrip()) < 30, line
