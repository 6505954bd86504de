"""Kernels read into functions in NumPy: judged right with them on the emulator, or refused with line and reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.session.lifting import lift_and_judge
from kernelmate.source import contract_for, load_kernel
from kernelmate.synthesis.lift.function import lift
from kernelmate.synthesis.lift.polynomials import NotLifted

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

ROWS = ("{ rows = 9, cols = 70 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }", {"x": "in float32[rows, cols]"})
ONE = ("{ n = 4099 }, { n = 1 }", {"x": "in float32[n]", "out": "out float32[n]"})
INTS = {"rows": "int32", "cols": "int32"}

TREE = """
  part[threadIdx.x] = {0};
  __syncthreads();
  for (int s = {1} / 2; s > 0; s >>= 1) {{
    if (threadIdx.x < s) part[threadIdx.x] = {2};
    __syncthreads();
  }}
"""

KERNELS: dict[str, tuple[str, dict[str, str], str, str, str]] = {
    # name: sizes, arguments, grid, block, source
    "scaled": (*ONE, 'grid = "cdiv(n, 256)"', "block = 256", """
__global__ void scaled(const float* x, float* out, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i] * by;
  out[i] = v < 0.0f ? 0.1f * v : v;
}"""),
    "strided": (*ONE, "grid = 3", "block = 128", """
__global__ void strided(const float* x, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = tanhf(x[i]) + log1pf(fabsf(x[i]));
}"""),
    "waited": (*ONE, "grid = 2", "block = 64", """
__global__ void waited(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  while (i < n) {
    out[i] = __expf(-x[i] * x[i]);
    i += blockDim.x * gridDim.x;
  }
}"""),
    "plane": (ROWS[0], {**ROWS[1], "w": "in float32[rows]", "out": "out float32[rows, cols]"}, 'grid = ["cdiv(cols, 16)", "cdiv(rows, 8)"]', "block = [16, 8]", """
__global__ void plane(const float* x, const float* w, float* out, int rows, int cols) {
  const int c = threadIdx.x + blockDim.x * blockIdx.x, r = threadIdx.y + blockDim.y * blockIdx.y;
  if (c < cols && r < rows) out[r * cols + c] = fmaf(x[r * cols + c], w[r], 1.0f);
}"""),
    "volume": ("{ a = 3, b = 5, c = 37 }, { a = 1, b = 1, c = 1 }", {"x": "in float32[a, b, c]", "s": "in float32[b]", "out": "out float32[a, b, c]"}, 'grid = ["cdiv(c, 32)", "b", "a"]', "block = 32", """
__global__ void volume(const float* x, const float* s, float* out, int b, int c) {
  int k = blockIdx.x * 32 + threadIdx.x;
  if (k >= c) return;
  size_t at = ((size_t)blockIdx.z * b + blockIdx.y) * c + k;
  out[at] = x[at] * s[blockIdx.y];
}"""),
    "softmax": (ROWS[0], {**ROWS[1], "out": "out float32[rows, cols]"}, 'grid = "rows"', "block = 64", """
__global__ void softmax(const float* x, float* out, int rows, int cols) {
  __shared__ float part[64];
  const float* row = x + (size_t)blockIdx.x * cols;
  float m = -INFINITY, sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) m = fmaxf(m, row[c]);
""" + TREE.format("m", 64, "fmaxf(part[threadIdx.x], part[threadIdx.x + s])") + """
  m = part[0];
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(row[c] - m);
""" + TREE.format("sum", 64, "part[threadIdx.x] + part[threadIdx.x + s]") + """
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[(size_t)blockIdx.x * cols + c] = expf(row[c] - m) / part[0];
}"""),
    "rmsnorm": (ROWS[0], {**ROWS[1], "w": "in float32[cols]", "out": "out float32[rows, cols]"}, 'grid = "cdiv(rows, 4)"', "block = 128", """
__device__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
  return v;
}
__global__ void rmsnorm(const float* x, const float* w, float* out, int rows, int cols) {
  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float s = 0.0f;
  for (int c = lane; c < cols; c += 32) s += x[row * cols + c] * x[row * cols + c];
  s = warp_sum(s);
  float scale = rsqrtf(s / cols + 1e-6f);
  for (int c = lane; c < cols; c += 32) out[row * cols + c] = x[row * cols + c] * scale * w[c];
}"""),
    "block_sums": (ROWS[0], {**ROWS[1], "out": "out float32[rows]"}, 'grid = "rows"', "block = 256", """
__global__ void block_sums(const float* x, float* out, int rows, int cols) {
  __shared__ float warps[8];
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c];
  for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (lane == 0) warps[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = lane < 8 ? warps[lane] : 0.0f;
    for (int d = 4; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
    if (lane == 0) out[blockIdx.x] = s;
  }
}"""),
    "shared_sum": (ROWS[0], {**ROWS[1], "out": "out float32[rows]"}, 'grid = "rows"', "block = 96", """
__global__ void shared_sum(const float* x, float* out, int rows, int cols) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 96) s += fabsf(x[blockIdx.x * cols + c]);
  atomicAdd(&total, s);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = total;
}"""),
    "columns": (ROWS[0], {**ROWS[1], "out": "inout float32[cols] ~ zeros"}, 'grid = ["cdiv(cols, 32)", "cdiv(rows, 4)"]', "block = [32, 4]", """
__global__ void columns(const float* x, float* out, int rows, int cols) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 4 + threadIdx.y;
  if (r < rows && c < cols) atomicAdd(&out[c], x[r * cols + c]);
}"""),
    "dot": ("{ n = 4099 }, { n = 1 }", {"x": "in float32[n]", "y": "in float32[n]", "out": "inout float32[1] ~ zeros"}, 'grid = "min(cdiv(n, 128), 7)"', "block = 128", """
__global__ void dot(const float* x, const float* y, float* out, int n) {
  __shared__ float part[128];
  float s = 0.0f;
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) s += x[i] * y[i];
""" + TREE.format("s", 128, "part[threadIdx.x] + part[threadIdx.x + s]").replace("int s =", "int half =").replace("s > 0; s >>=", "half > 0; half >>=").replace("< s)", "< half)").replace("+ s]", "+ half]") + """
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}"""),
    "product": ("{ m = 33, k = 21, n = 19 }, { m = 1, k = 1, n = 1 }", {"a": "in float32[m, k]", "b": "in float32[k, n]", "c": "out float32[m, n]"}, 'grid = ["cdiv(n, 8)", "cdiv(m, 8)"]', "block = [8, 8]", """
__global__ void product(const float* a, const float* b, float* c, int m, int k, int n) {
  __shared__ float left[8][8], right[8][9];
  int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 8 + threadIdx.x;
  float sum = 0.0f;
  for (int first = 0; first < k; first += 8) {
    left[threadIdx.y][threadIdx.x] = row < m && first + threadIdx.x < k ? a[row * k + first + threadIdx.x] : 0.0f;
    right[threadIdx.y][threadIdx.x] = first + threadIdx.y < k && col < n ? b[(first + threadIdx.y) * n + col] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 8; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}"""),
    "turned": (ROWS[0], {**ROWS[1], "out": "out float32[cols, rows]"}, 'grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]', "block = [16, 4]", """
__global__ void turned(const float* x, float* out, int rows, int cols) {
  __shared__ float tile[16][17];
  int c = blockIdx.x * 16 + threadIdx.x;
  for (int j = threadIdx.y; j < 16; j += 4) {
    int r = blockIdx.y * 16 + j;
    if (r < rows && c < cols) tile[j][threadIdx.x] = x[r * cols + c];
  }
  __syncthreads();
  int r = blockIdx.y * 16 + threadIdx.x;
  for (int j = threadIdx.y; j < 16; j += 4) {
    int to = blockIdx.x * 16 + j;
    if (to < cols && r < rows) out[to * rows + r] = tile[threadIdx.x][j];
  }
}"""),
    "stencil": (ROWS[0], {**ROWS[1], "out": "out float32[rows, cols]"}, 'grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]', "block = [16, 16]", """
__global__ void stencil(const float* x, float* out, int rows, int cols) {
  int j = blockIdx.x * 16 + threadIdx.x, i = blockIdx.y * 16 + threadIdx.y;
  if (i >= rows || j >= cols) return;
  int at = i * cols + j;
  if (i == 0 || j == 0 || i == rows - 1 || j == cols - 1) {
    out[at] = x[at];
  } else {
    out[at] = 0.25f * (x[at - 1] + x[at + 1] + x[at - cols] + x[at + cols]);
  }
}"""),
    "filtered": ("{ n = 2, h = 9, w = 11 }, { n = 1, h = 1, w = 1 }", {"x": "in float32[n, h, w]", "f": "in float32[3, 5]", "out": "out float32[n, h, w]"}, 'grid = "cdiv(n * h * w, 64)"', "block = 64", """
__global__ void filtered(const float* x, const float* f, float* out, int n, int h, int w) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= n * h * w) return;
  int col = i % w, row = i / w % h, b = i / (w * h);
  float s = 0.0f;
  for (int u = -1; u <= 1; u++)
    for (int v = -2; v <= 2; v++) {
      int r = row + u, c = col + v;
      if (r >= 0 && r < h && c >= 0 && c < w) s += f[(u + 1) * 5 + v + 2] * x[(b * h + r) * w + c];
    }
  out[i] = s;
}"""),
    "packed": ("{ n = 4099 }, { n = 1 }", {"x": "in uint8[n]", "scale": "in float16[1]", "out": "out float16[n]"}, 'grid = "cdiv(n, 128)"', "block = 128", """
#include <cuda_fp16.h>
__global__ void packed(const unsigned char* x, const __half* scale, __half* out, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) out[i] = __float2half((float)(((x[i] ^ 0x55) & 15) << 1) * __half2float(scale[0]));
}"""),
    "running": (ROWS[0], {**ROWS[1], "out": "out float32[rows, cols]"}, 'grid = "cdiv(rows, 32)"', "block = 32", """
__global__ void running(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * 32 + threadIdx.x;
  if (r >= rows) return;
  float best = -INFINITY;
  for (int c = 0; c < cols; c++) {
    best = fmaxf(best, x[r * cols + c]);
    out[r * cols + c] = best;
  }
}"""),
    "kept": (ROWS[0], {**ROWS[1], "w": "in float32[cols]", "out": "out float32[rows]"}, 'grid = "cdiv(rows, 32)"', "block = 32", """
__global__ void kept(const float* x, const float* w, float* out, int rows, int cols) {
  int r = blockIdx.x * 32 + threadIdx.x;
  if (r < rows) {
    out[r] = 0.0f;
    for (int c = 0; c < cols; c++) out[r] += x[r * cols + c] * w[c];
  }
}"""),
    "looked_up": ("{ n = 41, rows = 17, dim = 30 }, { n = 1, rows = 1, dim = 1 }", {"table": "in float32[rows, dim]", "ids": "in int32[n] ~ integers(0, rows)", "out": "out float32[n, dim]"}, 'grid = "n"', "block = 32", """
__global__ void looked_up(const float* table, const int* ids, float* out, int dim) {
  const float* from = table + (size_t)ids[blockIdx.x] * dim;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) out[blockIdx.x * dim + d] = from[d] * 2.0f;
}"""),
}  # fmt: skip

REFUSED: dict[str, tuple[str, str]] = {
    # name: the reason's beginning, and the body of a kernel of x, out and n
    "chased": ("a loop that does not count", "int i = threadIdx.x; float v = 1.0f; while (v < x[i]) v *= 2.0f; out[i] = v;"),
    "stopped": ("a loop that ends on a value", "float s = 0.0f; for (int i = 0; i < n; i++) { if (x[i] < 0) break; s += x[i]; } out[0] = s;"),
    "unknown": ("the function `j0f` is not known", "int i = threadIdx.x; if (i < n) out[i] = j0f(x[i]);"),
    "hurried": (
        "a race: s is read by other threads",
        "__shared__ float s[256]; s[threadIdx.x] = x[threadIdx.x]; out[threadIdx.x] = s[255 - threadIdx.x];",
    ),
    "scattered": ("the elements that are written are not a slice", "int i = threadIdx.x; if (i < n) out[(int)x[i]] = 1.0f;"),
    "fought": ("a race: several threads write", "int i = blockIdx.x * 256 + threadIdx.x; if (i < n) out[0] = x[i];"),
    "between": ("a loop between bounds that are read", "float s = 0; for (int i = (int)x[0]; i < (int)x[1]; i++) s += x[i]; out[0] = s;"),
    "recurrent": ("`h` carries more", "float h = 0; for (int i = 0; i < n; i++) h = 0.5f * h + x[i]; out[0] = h;"),
    "vectors": ("the type `float4`", "float4 v = make_float4(0, 0, 0, 0); out[threadIdx.x] = v.x;"),
    "aliased": ("an address of another type", "int i = threadIdx.x; out[i] = ((const int*)x)[i];"),
    "partial": ("elements of out are not written", "int i = blockIdx.x * 256 + threadIdx.x; if (i < n) if (x[i] > 0) out[i] = x[i];"),
    "oldest": ("the value that an atomic", "int i = blockIdx.x * 256 + threadIdx.x; if (i < n) out[i] = atomicAdd(out, 1.0f);"),
}  # fmt: skip


def written(folder: Path, name: str, sizes: str, args: dict[str, str], launch: str, source: str) -> Kernel:
    """The kernel in a file, with a contract that names no reference."""
    head = source[source.index("__global__") :]
    scalars = {
        one.split()[-1]: one.split()[0]
        for one in head[head.index("(") + 1 : head.index(")")].split(", ")
        if "*" not in one
    }
    more = {key: "float32 = 1.5" if kind == "float" else "int32" for key, kind in scalars.items()}
    names = [one.split()[-1].lstrip("*") for one in head[head.index("(") + 1 : head.index(")")].split(", ")]
    entries = [f'{key} = "{({**args, **more})[key]}"' for key in names]
    lines = ["/// kernelmate", f"sizes = [{sizes}]", *launch.split("\n"), "[args]", *entries, "///"]
    block = "".join(f"// {line}\n" for line in lines)
    at = source.index("__global__")
    path = folder / f"{name}.cu"
    path.write_text(source[:at].lstrip("\n") + block + source[at:] + "\n")
    return load_kernel(str(path))


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(backend="emulator", seed=11)) as made:
        yield made


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", KERNELS)
def test_a_lifted_kernel_agrees_and_its_function_is_traced(name: str, session: Session, tmp_path: Path) -> None:
    sizes, args, grid, block, source = KERNELS[name]
    found = lift_and_judge(session, written(tmp_path, name, sizes, args, f"{grid}\n{block}", source))
    assert found.agrees, (found.line, found.reason, found.function)
    assert found.cases >= 2
    assert found.note is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("softmax", "m = x.max(axis=1, initial=-np.inf)"),
        ("product", "return a @ b"),
        ("turned", "return x.T"),
        ("columns", "return out + x.sum(axis=0)"),
        ("looked_up", "return table[ids] * 2"),
        ("running", "return np.maximum.accumulate(x, axis=1)"),
    ],
)
def test_a_lifted_function_reads_as_a_person_writes_it(name: str, line: str, tmp_path: Path) -> None:
    sizes, args, grid, block, source = KERNELS[name]
    kernel = written(tmp_path, name, sizes, args, f"{grid}\n{block}", source)
    assert line in lift(kernel, contract_for(kernel)).text


@pytest.mark.parametrize("name", REFUSED)
def test_a_kernel_that_is_not_lifted_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    reason, body = REFUSED[name]
    source = f"\n__global__ void {name}(const float* x, float* out, int n) {{\n  {body}\n}}"
    kernel = written(tmp_path, name, "{ n = 512 }, { n = 300 }", ONE[1], 'grid = "cdiv(n, 256)"\nblock = 256', source)
    with pytest.raises(NotLifted) as refused:
        lift(kernel, contract_for(kernel))
    assert refused.value.reason.startswith(reason)
    assert refused.value.line == kernel.line + 1


def test_a_missing_barrier_between_iterations_is_refused(tmp_path: Path) -> None:
    sizes, args, grid, block, source = KERNELS["product"]
    hasty = source.replace("right[i][threadIdx.x];\n    __syncthreads();", "right[i][threadIdx.x];")
    kernel = written(tmp_path, "product", sizes, args, f"{grid}\n{block}", hasty)
    with pytest.raises(NotLifted, match="a race"):
        lift(kernel, contract_for(kernel))


def test_a_transposition_in_place_is_refused(tmp_path: Path) -> None:
    source = """
__global__ void flipped(float* x, int n) {
  int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y;
  if (i < n) x[i * n + j] = x[j * n + i];
}"""
    kernel = written(
        tmp_path,
        "flipped",
        "{ n = 32 }",
        {"x": "inout float32[n, n]"},
        'grid = ["cdiv(n, 16)", "n"]\nblock = 16',
        source,
    )
    with pytest.raises(NotLifted, match="a race"):
        lift(kernel, contract_for(kernel))


def test_a_function_that_disagrees_is_not_offered(session: Session, tmp_path: Path) -> None:
    """The kernel leaves elements beyond its grid, which no guard says."""
    source = """
__global__ void short_of(const float* x, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}"""
    kernel = written(tmp_path, "short_of", "{ n = 256 }, { n = 700 }", ONE[1], "grid = 1\nblock = 256", source)
    found = lift_and_judge(session, kernel)
    assert not found.agrees
    assert found.reason
