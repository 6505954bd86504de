"""Written kernels keep what the file has: grids of two sides, blocks, helpers, constants, names, and the order of sizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelmate.session import Session
from kernelmate.source import contract_for, load_kernel
from kernelmate.suggest.replacement import with_helper_comments, with_own_qualifiers, without_own_helpers
from kernelmate.synthesis.file_style import FileStyle
from kernelmate.synthesis.kept_text import in_own_order, own_column, own_row
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.own_reductions import warp_reductions
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.qualifiers import own_qualifiers, with_qualifiers
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right


def contract(sizes: str, args: str, grid: str, block: str, reference: str) -> str:
    lines = [
        "/// kernelmate",
        f"sizes = [{sizes}]",
        f"grid = {grid}",
        f"block = {block}",
        f'reference = "{reference}"',
        "[args]",
    ]
    lines += [f'{name} = "{entry}"' for name, _, entry in (one.partition(": ") for one in args.split("; "))]
    return "".join(f"// {line}\n" for line in [*lines, "///"])


def rewritten(folder: Path, text: str, name: str = "", schedule: str = "") -> str:
    """The file with the first kernel of a schedule that is written for a reference."""
    path = folder / "kernel.cu"
    path.write_text(text)
    kernel = load_kernel(f"{path}::{name}" if name else str(path))
    found, bare = contract_for(kernel), without_own_helpers(kernel)
    texts = kernels_for(trace(found, folder), bare, found)
    new = placed(bare, found, next(one for one in texts if one.schedule.startswith(schedule)))[0]
    return with_helper_comments(kernel, with_own_qualifiers(kernel, new)).unit.text


BIASED = "x: in float32[rows, cols]; bias: in float32[cols]; y: out float32[rows, cols]; rows: int32; cols: int32"
MATRICES = "{ rows = 64, cols = 4096 }, { rows = 5, cols = 37 }"
ROWS_BELOW = (
    contract(MATRICES, BIASED, '["cdiv(cols, 32)", "cdiv(rows, 8)"]', "[32, 8]", "np.sqrt(np.abs(x + bias))")
    + """__global__ void root(const float* x, const float* bias, float* y, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) y[r * cols + c] = sqrtf(fabsf(x[r * cols + c] + bias[c]));
}

void run(const float* x, const float* bias, float* y, int rows, int cols) {
  dim3 block(32, 8);
  dim3 grid((cols + 31) / 32, (rows + 7) / 8);
  root<<<grid, block>>>(x, bias, y, rows, cols);
}
"""
)


def test_a_map_keeps_the_rows_along_the_second_side_of_the_grid(tmp_path: Path) -> None:
    text = rewritten(tmp_path, ROWS_BELOW, schedule="pointwise-rows")
    assert '// grid = ["cdiv(cols, 128)", "cdiv(rows, 8)"]' in text
    assert "// block = [32, 8]" in text
    assert "r = blockIdx.y * blockDim.y + threadIdx.y;" in text
    assert "if (r >= rows) return;" in text
    assert re.search(r"for \(int c = first; c < cols; c \+= stride\)", text), text


def test_a_row_of_blocks_for_each_row_keeps_its_grid_without_a_number_of_rows(tmp_path: Path) -> None:
    given = BIASED.replace("; rows: int32", "")
    text = (
        contract(MATRICES, given, '["cdiv(cols, block)", "rows"]', "256", "np.sqrt(np.abs(x + bias))")
        + """__global__ void root(const float* x, const float* bias, float* y, int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const size_t i = (size_t)blockIdx.y * cols + c;
  y[i] = sqrtf(fabsf(x[i] + bias[c]));
}
"""
    )
    text = rewritten(tmp_path, text, schedule="pointwise-rows")
    assert '// grid = ["cdiv(cols, block * 4)", "rows"]' in text
    assert "const size_t row = blockIdx.y;" in text


def test_maps_with_rows_along_the_second_side_are_right(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(ROWS_BELOW)
    assert "synthesis:pointwise-rows" in assert_judged_right(session, load_kernel(str(path)))


@pytest.mark.parametrize(("block", "kept"), [("512", "512"), ("128", "128"), ("32", "256"), ("1024", "256")])
def test_a_flat_map_keeps_the_usual_sizes_of_blocks(block: str, kept: str, tmp_path: Path) -> None:
    text = (
        contract("{ n = 65536 }", "x: in float32[n]; y: out float32[n]; n: int32", '"cdiv(n, block)"', block, "x + 1")
        + "__global__ void inc(const float* x, float* y, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) y[i] = x[i] + 1.0f;\n}\n"
    )
    assert f"// block = {kept}\n" in rewritten(tmp_path, text, schedule="pointwise")


HEADS = """#include <cstddef>

namespace {

@// [batch, seqLen, numHeads, headDim] -> [batch, numHeads, seqLen, headDim]
__global__ void splitHeads(const float* src, float* dst, int batch, int seqLen, int numHeads, int headDim) {
    const size_t idx = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t total = static_cast<size_t>(batch) * seqLen * numHeads * headDim;
    if (idx >= total) return;
    const size_t row = idx / headDim;
    dst[idx] = src[(row / seqLen / numHeads * seqLen + row % seqLen) * numHeads * headDim + row / seqLen % numHeads * headDim + idx % headDim];
}

}  // namespace
"""


def test_sizes_are_in_the_files_order_and_heads_without_static_are_aligned(tmp_path: Path) -> None:
    args = "src: in float32[batch, seqLen, numHeads, headDim]; dst: out float32[batch, numHeads, seqLen, headDim]; batch: int32; seqLen: int32; numHeads: int32; headDim: int32"
    sizes = "{ batch = 2, seqLen = 64, numHeads = 8, headDim = 64 }"
    head = contract(
        sizes, args, '"cdiv(batch * seqLen * numHeads * headDim, block)"', "256", "src.transpose(0, 2, 1, 3)"
    )
    text = rewritten(tmp_path, HEADS.replace("@", head), schedule="permutation-packs")
    assert '// grid = "cdiv(batch * seqLen * numHeads * headDim, block * 4)"' in text
    assert "    const size_t total = static_cast<size_t>(batch) * seqLen * numHeads * headDim;\n" in text
    first, second = re.search(r"^(__device__ [^\n]*\()[^\n]*\n( +)int numHeads", text, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert len(first) == len(second), text


LOSS = """#define BLOCK 128
#define FULL_MASK 0xffffffffu

__device__ float warp_max(float v)
{
    for (int o = 16; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(FULL_MASK, v, o));
    return v;
}

__device__ float warp_total(float v)
{
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(FULL_MASK, v, o);
    return v;
}

@__global__ void loss(const float* x, float* y, int samples, int classes)
{
    int sample = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (sample >= samples)
        return;
    const float* logits = x + (size_t)sample * classes;
    float peak = -1e30f;
    for (int c = lane; c < classes; c += 32)
        peak = fmaxf(peak, logits[c]);
    peak = warp_max(peak);
    float sum = 0.0f;
    for (int c = lane; c < classes; c += 32)
        sum += expf(logits[c] - peak);
    sum = warp_total(sum);
    if (lane == 0)
        y[sample] = logf(sum) + peak;
}
"""


def test_equal_warp_reductions_and_names_of_the_file_stay(tmp_path: Path) -> None:
    args = "x: in float32[samples, classes]; y: out float32[samples]; samples: int32; classes: int32"
    reference = (
        "def reference(x):\n    peak = x.max(axis=1)\n    return np.log(np.exp(x - peak[:, None]).sum(axis=1)) + peak"
    )
    (tmp_path / "reference.py").write_text(f"import numpy as np\n\n\n{reference}\n")
    sizes = "{ samples = 512, classes = 1000 }, { samples = 9, classes = 33 }"
    head = contract(sizes, args, '"cdiv(samples, 4)"', "128", "reference.py:reference")
    text = rewritten(tmp_path, LOSS.replace("@", head), schedule="rows-warp-kept")
    for kept in ("__device__ float warp_max(float v)", "__device__ float warp_total(float v)"):
        assert text.count(kept) == 1
    assert " = warp_max(" in text
    assert " = warp_total(" in text
    assert "warp_sum" not in text
    assert "const float* logits = x + sample * classes;" in text
    assert "static __device__" not in text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);\n  return v;", "sum"),
        ("#pragma unroll\n  for (int o = LANES / 2; o > 0; o >>= 1) {\n    v = fminf(v, __shfl_xor_sync(0xFFFFFFFFu, v, o));\n  }\n  return v;", "min"),
        ("for (int o = 8; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);\n  return v;", ""),
        ("for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);\n  return v;", ""),
        ("for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffff, v, o);\n  return v;", ""),
        ("for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);\n  return v / 32;", ""),
    ],
)  # fmt: skip
def test_only_reductions_of_whole_warps_are_known(body: str, kind: str) -> None:
    text = f"constexpr int LANES = 32;\n__device__ __forceinline__ float reduce(float v) {{\n  {body}\n}}\n"
    assert warp_reductions(text) == ({kind: "reduce"} if kind else {})


DENSE = """namespace nn {
namespace detail {

@__global__ void dense(const float* x, const float* w, float* y, int batch, int ins, int outs) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= batch || col >= outs) return;
  float acc = 0.0f;
  for (int k = 0; k < ins; ++k) acc += x[row * ins + k] * w[k * outs + col];
  y[row * outs + col] = acc;
}

}  // namespace detail

void dense(const float* x, const float* w, float* y, int batch, int ins, int outs) {
  const dim3 block(16, 16);
  const dim3 grid((outs + 15) / 16, (batch + 15) / 16);
  detail::dense<<<grid, block>>>(x, w, y, batch, ins, outs);
}

}  // namespace nn
"""


def test_launches_outside_of_the_namespace_qualify_the_constants(tmp_path: Path) -> None:
    args = "x: in float32[batch, ins]; w: in float32[ins, outs]; y: out float32[batch, outs]; batch: int32; ins: int32; outs: int32"
    sizes = "{ batch = 128, ins = 512, outs = 256 }"
    head = contract(sizes, args, '["cdiv(outs, 16)", "cdiv(batch, 16)"]', "[16, 16]", "x @ w")
    text = rewritten(tmp_path, DENSE.replace("@", head), schedule="contraction-32x32")
    assert "const dim3 block(detail::kThreads);" in text
    sides = "(outs + detail::kTileN - 1) / detail::kTileN, (batch + detail::kTileM - 1) / detail::kTileM"
    assert sides in " ".join(text.split())
    assert "first_col" in text
    assert "column" not in re.sub(r"//[^\n]*", "", text)


BOXES = """#define TILE 16

@__global__ void overlap(const float *a, const float *b, float *y, int n, int m)
{
	int j = blockIdx.x * TILE + threadIdx.x;
	int i = blockIdx.y * TILE + threadIdx.y;
	if (i >= n || j >= m)
		return;
	y[i * m + j] = fminf(a[2 * i + 1], b[2 * j + 1]) - fmaxf(a[2 * i], b[2 * j]);
}

void run(const float *a, const float *b, float *y, int n, int m)
{
	dim3 block(TILE, TILE);
	dim3 grid((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
	overlap<<<grid, block>>>(a, b, y, n, m);
}
"""


def test_interleaved_results_have_the_files_positions_and_elements_their_numbers(tmp_path: Path) -> None:
    args = "a: in float32[n, 2]; b: in float32[m, 2]; y: out float32[n, m]; n: int32; m: int32"
    reference = "np.minimum(a[:, None, 1], b[None, :, 1]) - np.maximum(a[:, None, 0], b[None, :, 0])"
    head = contract(
        "{ n = 512, m = 512 }, { n = 37, m = 19 }", args, '["cdiv(m, 16)", "cdiv(n, 16)"]', "[16, 16]", reference
    )
    text = rewritten(tmp_path, BOXES.replace("@", head), schedule="interleaved")
    assert "const int i = blockIdx.y * THREADS_Y + threadIdx.y;" in text
    assert "const int j = (blockIdx.x * THREADS_X + threadIdx.x) * PER_THREAD;" in text
    assert "+ THREADS_X * PER_THREAD - 1) / (THREADS_X * PER_THREAD)" in text
    assert not re.search(r"\b[ab]_(?:i|value)\b", text), text


@pytest.mark.parametrize(
    ("name", "part"), [("QuantiseRows", "Quantise_row"), ("rowSum", "sum_row"), ("softmax_rows", "softmax_row"), ("norm", "norm_row")]
)  # fmt: skip
def test_the_function_of_a_row_has_the_word_once_in_any_case(name: str, part: str, tmp_path: Path) -> None:
    args = "x: in float32[rows, cols]; y: out float32[rows]; rows: int32; cols: int32"
    path = tmp_path / "kernel.cu"
    head = contract(MATRICES, args, '"rows"', "128", "x.sum(axis=1)")
    path.write_text(f"{head}__global__ void {name}(const float* x, float* y, int rows, int cols) {{\n}}\n")
    kernel = load_kernel(str(path))
    assert KernelText(kernel, contract_for(kernel)).part_name("row") == part


def test_a_quotient_that_is_stored_in_an_array_of_several_has_its_singular(tmp_path: Path) -> None:
    args = "x: in float32[rows, cols]; scales: out float32[rows]; y: out float32[rows, cols]; rows: int32; cols: int32"
    reference = "def reference(x):\n    scales = np.abs(x).max(axis=1) / 127\n    return scales, x / scales[:, None]"
    (tmp_path / "reference.py").write_text(f"import numpy as np\n\n\n{reference}\n")
    head = contract("{ rows = 64, cols = 1024 }", args, '"rows"', "128", "reference.py:reference")
    text = rewritten(
        tmp_path,
        f"{head}__global__ void quantise(const float* x, float* scales, float* y, int rows, int cols) {{\n}}\n",
    )
    assert "float scale = " in text
    assert "row_scales" not in text


def test_positions_beyond_a_border_are_numbered_by_their_distance(tmp_path: Path) -> None:
    args = "x: in float32[height, width]; y: out float32[height, width]; height: int32; width: int32"
    reference = "def reference(x):\n    height = x.shape[0]\n    p = np.pad(x, ((2, 2), (0, 0)), mode='edge')\n    return p[0:height] + p[1:height + 1] + p[2:height + 2]"
    (tmp_path / "reference.py").write_text(f"import numpy as np\n\n\n{reference}\n")
    head = contract(
        "{ height = 64, width = 64 }",
        args,
        '["cdiv(width, 32)", "cdiv(height, 8)"]',
        "[32, 8]",
        "reference.py:reference",
    )
    body = "  int x = blockIdx.x * blockDim.x + threadIdx.x;\n  int y = blockIdx.y * blockDim.y + threadIdx.y;"
    text = rewritten(
        tmp_path,
        f"{head}__global__ void blurDown(const float* x, float* y, int height, int width) {{\n{body.replace('int x', 'int pixelX').replace('int y', 'int pixelY')}\n}}\n",
    )
    assert "pixelYBefore2" in text
    assert not re.search(r"pixelY_|_\d\b", text), text


def test_qualifiers_are_those_of_all_functions_of_the_file() -> None:
    text = "__device__ inline float f(float x) { return x; }\n__device__ int counter;\n"
    assert own_qualifiers(text) == "__device__ inline"
    assert own_qualifiers(text + "static __device__ float g(float x) { return x; }\n") == ""
    head = "static __device__ __forceinline__ void longer_name(\n    const float* first, const float* second) {\n}\n"
    assert (
        with_qualifiers(head, "__device__", 100)
        == "__device__ void longer_name(const float* first, const float* second) {\n}\n"
    )


SUMMED = """#include <cstddef>

/// Sums `value` over the block; every thread gets the result.
__device__ inline float blockSum(float value, float* buffer)
{
    buffer[threadIdx.x] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < blockDim.x; ++i)
    {
        sum += buffer[i];
    }
    __syncthreads();
    return sum;
}

@__global__ void rowSum(const float* x, float* y, int rows, int cols)
{
    __shared__ float buffer[256];
    const float* rowData = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
    {
        sum += rowData[i];
    }
    sum = blockSum(sum, buffer);
    if (threadIdx.x == 0)
    {
        y[blockIdx.x] = sum;
    }
}
"""


@pytest.mark.parametrize(
    ("comment", "stays"), [("every thread gets the result", True), ("`buffer` has a float per thread", False)]
)
def test_a_helper_of_the_same_name_has_the_comment_if_it_is_true(comment: str, stays: bool, tmp_path: Path) -> None:
    args = "x: in float32[rows, cols]; y: out float32[rows]; rows: int32; cols: int32"
    head = contract("{ rows = 64, cols = 4096 }", args, '"rows"', "256", "x.sum(axis=1)")
    source = SUMMED.replace("@", head).replace("every thread gets the result", comment)
    text = rewritten(tmp_path, source, schedule="rows-block")
    assert "__device__ inline float blockSum(float value)\n" in text
    assert (f"{comment}.\n__device__ inline float blockSum(float value)" in text) == stays
    assert "rowData = x + " in text


def test_a_macros_loop_is_no_evidence_of_statements_below_their_condition(tmp_path: Path) -> None:
    macro = "#define CHECK(e)  \\\n    do            \\\n    {             \\\n        if (e)    \\\n            stop(); \\\n    } while (0)\n\n"
    path = tmp_path / "kernel.cu"
    path.write_text(f"{macro}{SUMMED.replace('@', '')}")
    style = FileStyle.of(load_kernel(f"{path}::rowSum"))
    assert (style.apart, style.bare) == ("braced", "")


def test_names_of_rows_and_columns_are_read_from_any_launch() -> None:
    assert own_column("const int col = blockIdx.x * blockDim.x + threadIdx.x;") == "col"
    assert own_column("const int index = blockIdx.x * blockDim.x + threadIdx.x;") == "column"
    assert (
        own_row(
            "int sample = blockIdx.x * 4 + threadIdx.x / 32; if (sample >= samples) return;",
            "samples",
            ("cdiv(samples, 4)",),
        )
        == "sample"
    )


def test_factors_of_another_grid_keep_their_own_order(tmp_path: Path) -> None:
    args = "x: in float32[rows, cols]; y: out float32[rows, cols]; rows: int32; cols: int32"
    path = tmp_path / "kernel.cu"
    head = contract(MATRICES, args, '"cdiv(cols * rows, block)"', "128", "x + 1")
    path.write_text(f"{head}__global__ void inc(const float* x, float* y, int rows, int cols) {{\n}}\n")
    found = contract_for(load_kernel(str(path)))
    assert in_own_order(found, ("rows", "cols")) == ["cols", "rows"]
    assert in_own_order(found, ("rows", "depth")) == ["rows", "depth"]
