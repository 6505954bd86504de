"""Inference of contracts from host code of ten styles, and the places that it states for each line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.errors import ContractError
from kernelmate.records import Kernel
from kernelmate.source import find_kernels, inference, load_kernel, render_contract, text_unit

SCALE = "__global__ void scale(const float* x, float* y, float a, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a * x[i];\n}\n"
GRID_OF_ROWS = "__global__ void rows(float* x, const float* bias, int height, int width) {\n  for (int c = threadIdx.x; c < width; c += blockDim.x) x[blockIdx.x * width + c] += bias[c];\n}\n"


def lines(kernel: Kernel) -> list[str]:
    """The contract's lines without comment marks, with origins."""
    found = inference(kernel)
    return [line[3:] for line in render_contract(found.contract, origins=found.origins).splitlines()[1:-1]]


def told(text: str, name: str | None = None) -> list[str]:
    kernels = find_kernels(text_unit(text))
    return lines(next(kernel for kernel in kernels if name is None or kernel.name == name))


def told_in(folder: Path, files: dict[str, str], spec: str) -> list[str]:
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return lines(load_kernel(str(folder / spec)))


def test_a_c_program_gives_sizes_launch_and_directions() -> None:
    text = (
        SCALE
        + """
#define THREADS 128
#define CHECK(call) do { if ((call) != cudaSuccess) exit(1); } while (0)
int main(void) {
  const int count = 5000;
  size_t bytes = count * sizeof(float);
  float *h_x = (float*)malloc(bytes), *d_x, *d_y;
  CHECK(cudaMalloc((void**)&d_x, bytes));
  CHECK(cudaMalloc(&d_y, bytes));
  CHECK(cudaMemcpy(d_x, h_x, bytes, cudaMemcpyHostToDevice));
  int blocks = (count + THREADS - 1) / THREADS;
  scale<<<blocks, THREADS>>>(d_x, d_y, 2.5f, count);
  CHECK(cudaMemcpy(h_x, d_y, bytes, cudaMemcpyDeviceToHost));
}
"""
    )
    assert told(text) == [
        "sizes = [{ n = 5000 }]  # inferred: line 9",
        'grid = "cdiv(n, block)"  # inferred: lines 15 and 16',
        "block = 128  # inferred: lines 6 and 16",
        "[args]",
        'x = "in float32[n]"  # inferred: lines 12 and 14',
        'y = "out float32[n]"  # inferred: lines 13 and 17',
        'a = "float32 = 2.5"  # inferred: line 16',
        'n = "int32"',
    ]


def test_a_torch_extension_gives_the_sides_of_its_tensors() -> None:
    text = (
        GRID_OF_ROWS
        + """
#include <ATen/cuda/CUDAContext.h>
torch::Tensor add_bias(torch::Tensor input, torch::Tensor bias) {
  TORCH_CHECK(input.dim() == 2);
  TORCH_CHECK(bias.dim() == 1);
  const int B = input.size(0), C = input.size(1);
  auto out = input.contiguous().clone();
  dim3 block(std::min(C, 512));
  rows<<<dim3(B), block, 0, at::cuda::getCurrentCUDAStream()>>>(out.data_ptr<float>(), bias.data_ptr<float>(), B, bias.size(0));
  return out;
}
"""
    )
    found = told(text)
    assert found[0] == "sizes = [{ height = 256, width = 256 }, { height = 37, width = 53 }]  # a guess"
    assert found[1:3] == [
        'grid = "height"  # inferred: line 12',
        "block = 256  # a guess",  # nothing says that C is the length of the bias
    ]
    assert found[4:6] == [
        'x = "inout float32[height, width]"  # inferred: its subscripts',
        'bias = "in float32[width]"  # inferred: line 12',
    ]


def test_tensors_made_for_the_kernel_are_outputs() -> None:
    text = (
        SCALE
        + """
at::Tensor run(const at::Tensor& x) {
  auto y = torch::empty_like(x);
  auto z = torch::zeros({x.numel()}, x.options());
  const int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale<<<at::cuda::ATenCeilDiv(n, int64_t(256)), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), z.data_ptr<float>(), 1.0, n);
  });
  return z;
}
"""
    )
    found = told(text)
    assert found[1] == 'grid = "cdiv(n, block)"  # inferred: line 11'
    assert found[5] == 'y = "out float32[n]"  # inferred: line 8'


def test_a_templated_launcher_is_followed_to_its_call() -> None:
    text = """template <int B> __global__ void fill(float* x, int n) { int i = blockIdx.x * B + threadIdx.x; if (i < n) x[i] = 1; }
template <int BLOCK> void launch(float* data, int count) {
  fill<BLOCK><<<(count + BLOCK - 1) / BLOCK, BLOCK>>>(data, count);
}
void run() {
  float* d;
  cudaMalloc(&d, 3000 * sizeof(float));
  launch<64>(d, 3000);
}
"""
    assert told(text) == [
        "sizes = [{ n = 3000 }]  # inferred: line 3",
        'grid = "cdiv(n, block)"  # inferred: line 3',
        "block = 64  # inferred: line 3",
        'instances = ["fill<64>"]  # inferred: its use at line 3',
        "[args]",
        'x = "out float32[n]"  # inferred: line 7',
        'n = "int32"',
    ]


def test_a_launch_in_a_macro_is_expanded() -> None:
    text = (
        SCALE
        + """
#define LAUNCH(kernel, count, ...) kernel<<<((count) + 255) / 256, 256>>>(__VA_ARGS__)
void run(const float* in, float* out, int count) {
  LAUNCH(scale, count, in, out, 0.5f, count);
}
"""
    )
    found = told(text)
    assert found[1:3] == ['grid = "cdiv(n, block)"  # inferred: line 8', "block = 256  # inferred: line 8"]
    assert found[6] == 'a = "float32 = 0.5"  # inferred: line 8'


def test_unified_memory_is_filled_by_the_host() -> None:
    text = """__global__ void add(int n, float* x, float* y) { for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + y[i]; }
int main() {
  int N = 1 << 10;
  float *x, *y;
  cudaMallocManaged(&x, N * sizeof(float));
  cudaMallocManaged(&y, N * sizeof(float));
  for (int i = 0; i < N; i++) { x[i] = 1.0f; y[i] = 2.0f; }
  add<<<1, 256>>>(N, x, y);
}
"""
    assert told(text) == [
        "sizes = [{ n = 1024 }]  # inferred: line 3",
        "grid = 1  # inferred: line 8",
        "block = 256  # inferred: line 8",
        "[args]",
        'n = "int32"',
        'x = "in float32[n]"  # inferred: lines 5 and 7',
        'y = "inout float32[n]"  # inferred: lines 6 and 7',
    ]


def test_a_pitched_allocation_gives_rows_of_its_width() -> None:
    text = """__global__ void clear(float* image, size_t pitch, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) ((float*)((char*)image + y * pitch))[x] = 0;
}
void run(int w, int h) {
  float* image;
  size_t pitch;
  cudaMallocPitch(&image, &pitch, w * sizeof(float), h);
  dim3 block(32, 8);
  dim3 grid((w + block.x - 1) / block.x, (h + block.y - 1) / block.y);
  clear<<<grid, block>>>(image, pitch, w, h);
}
"""
    assert told(text) == [
        "sizes = [{ height = 256, width = 256 }, { height = 37, width = 53 }]  # a guess",
        'grid = ["cdiv(width, block_x)", "cdiv(height, block_y)"]  # inferred: lines 10 and 11',
        "block = [32, 8]  # inferred: lines 9 and 11",
        "[args]",
        'image = "out float32[height, width]"  # inferred: line 8',
        'pitch = "uint64 = width * 4"  # inferred: line 8',
        'width = "int32"',
        'height = "int32"',
    ]


def test_a_rawkernel_takes_the_sides_of_its_arrays(tmp_path: Path) -> None:
    text = '''import cupy as cp
kernel = cp.RawKernel(r"""
extern "C" __global__ void rows(float* x, const float* bias, int height, int width) {
  for (int c = threadIdx.x; c < width; c += blockDim.x) x[blockIdx.x * width + c] += bias[c];
}
""", "rows")
h, w = 40, 60
height = 40
width = 60
x = cp.zeros((height, width), dtype=cp.float32)
bias = cp.random.rand(width).astype(cp.float32)
kernel((height,), (128,), (x, bias, cp.int32(x.shape[0]), cp.int32(width)))
'''
    assert told_in(tmp_path, {"a.py": text}, "a.py") == [
        "sizes = [{ height = 40, width = 60 }]  # inferred: line 12",
        'grid = "height"  # inferred: line 12',
        "block = 128  # inferred: line 12",
        "[args]",
        'x = "inout float32[height, width] ~ zeros"  # inferred: line 10',
        'bias = "in float32[width]"  # inferred: line 11',
        'height = "int32"',
        'width = "int32"',
    ]


def test_the_file_that_includes_a_header_launches_its_kernel(tmp_path: Path) -> None:
    host = """#include "scale.cuh"
static int divide(int a, int b) { return (a + b - 1) / b; }
int main() {
  std::vector<float> host(6000);
  thrust::device_vector<float> x(host.size()), y(6000);
  const int n = 6000;
  scale<<<divide(n, 192), 192>>>(thrust::raw_pointer_cast(x.data()), thrust::raw_pointer_cast(y.data()), 1.5f, n);
}
"""
    found = told_in(tmp_path, {"scale.cuh": SCALE, "main.cu": host}, "scale.cuh")
    assert found[0] == "sizes = [{ n = 6000 }]  # inferred: main.cu:6"
    assert found[1:3] == ['grid = "cdiv(n, block)"  # inferred: main.cu:7', "block = 192  # inferred: main.cu:7"]


@pytest.mark.parametrize(
    "launch",
    [
        "void* args[] = {&d_x, &d_y, &a, &n}; cudaLaunchKernel((void*)scale, grid, block, args, 0, 0);",
        'CUfunction f; cuModuleGetFunction(&f, module, "scale"); void* args[] = {(void*)&d_x, &d_y, &a, &n};'
        " cuLaunchKernel(f, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, args, 0);",
    ],
)
def test_a_launch_by_a_list_of_addresses_is_read(launch: str) -> None:
    text = f"{SCALE}void run(float* d_x, float* d_y, int n) {{ float a = 3; dim3 block(64); dim3 grid((n + 63) / 64); {launch} }}"
    found = inference(find_kernels(text_unit(text))[0]).contract
    assert found.grid[0] in ("cdiv(n, block)", "cdiv(n, 64)")
    assert found.block[0] == "64"
    assert found.args[2].value == "3.0"


def test_a_function_that_is_given_the_kernel_is_followed() -> None:
    text = (
        SCALE
        + """
template <typename K, typename... Args> void linear(K kernel, int n, Args... args) {
  kernel<<<(n + 127) / 128, 128>>>(args...);
}
void run(float* x, float* y, int count) { linear(scale, count, x, y, 2.0f, count); }
"""
    )
    assert told(text)[1:3] == ['grid = "cdiv(n, block)"  # inferred: line 7', "block = 128  # inferred: line 7"]


def test_what_follows_from_other_sizes_is_no_size() -> None:
    text = """__global__ void k(const float* x, float* y, int total, int c) { int i = blockIdx.x; if (i < total) y[i] = x[i % c]; }
void run(const float* x, float* y, int rows, int c) { const int total = rows * c; k<<<total, 1>>>(x, y, total, c); }
__global__ void m(const float* x, float* y, int total, int rows, int c) { int i = blockIdx.x; if (i < total) y[i] = x[i % c]; }
void more(const float* x, float* y, int rows, int c) { const int total = rows * c; m<<<total, 1>>>(x, y, total, rows, c); }
"""
    assert 'total = "int32"' in told(text, "k")
    assert 'total = "int32 = rows * c"  # inferred: line 4' in told(text, "m")


def test_a_quotient_gives_the_size_that_it_divides() -> None:
    text = """__global__ void k(float* out, int b, int nh, int hs) { out[blockIdx.x] = 1; }
void forward(float* out, int B, int C, int NH) { int HS = C / NH; k<<<B, 32>>>(out, B, NH, HS); }
int main() { int B = 4; int C = 64; int NH = 2; float* d; cudaMalloc(&d, B * C * sizeof(float)); forward(d, B, C, NH); }
"""
    found = told(text)
    assert found[0] == "sizes = [{ b = 4, nh = 2, hs = 32 }]  # inferred: lines 2 and 3"
    assert found[4] == 'out = "out float32[b, hs, nh]"  # inferred: line 3'


def test_large_sizes_are_halved_and_said() -> None:
    text = SCALE + "int main() { int n = 1 << 24; scale<<<(n + 255) / 256, 256>>>(x, y, 1.0f, n); }\n"
    assert told(text)[0] == "sizes = [{ n = 131072 }]  # inferred: line 5, n = 16777216 there"


@pytest.mark.parametrize(
    ("launch", "grid"),
    [
        ("scale<<<(int)ceil(n / 256.0), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("scale<<<n > 1024 ? 1024 : n, 256>>>(x, y, 1, n)", "1024 if n > 1024 else n"),
        ("scale<<<(n >> 8) + 1, 256>>>(x, y, 1, n)", "n // 256 + 1"),
        ("scale<<<((n + 255) & ~255) / 256, 256>>>(x, y, 1, n)", "cdiv(n, block) * block // 256"),
        ("scale<<<static_cast<unsigned>((n + 255) / 256), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("scale << <(n + 255) / 256, 256 >> >(x, y, 1, n)", "cdiv(n, block)"),
        ("dim3 g; g.x = (n + 255) / 256; scale<<<g, 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("int g = 5; g += n; scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("scale<<<ceil(n / 256), 256>>>(x, y, 1, n)", "n // 256"),
        ("scale<<<std::ceil((float)n / 256), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("scale<<<ceil((float)(n / 256)), 256>>>(x, y, 1, n)", "n // 256"),
        ("scale<<<ceilf(1.0f * n / 256), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("scale<<<ceil(n / static_cast<double>(256)), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("scale<<<(int)ceil((n / 2) / 256.0) * 2, 256>>>(x, y, 1, n)", "cdiv(n // 2, block) * 2"),
        ("const float t = 256; scale<<<ceil(n / t), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("double g = n / 256.0; scale<<<ceil(g), 256>>>(x, y, 1, n)", "cdiv(n, block)"),
        ("int t = 256; scale<<<ceil(n / t), 256>>>(x, y, 1, n)", "n // 256"),
        ("scale<<<n / 256.0 + 1, 256>>>(x, y, 1, n)", "n // 256 + 1"),
        ("int g = n / 2.0 * 3; scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("int g = 2 * (n / 2.0); scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("int g = n - n / 2.0; scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("float h = n / 2.0f; int g = h * 3; scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("int g = ceil(n / 2.0 / 3); scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("scale<<<n << 3 >> 1, 256>>>(x, y, 1, n)", "n * 8 // 2"),
        ("scale<<<n >> 3 << 1, 256>>>(x, y, 1, n)", "n // 8 * 2"),
        ("scale<<<n + 7 & ~7, 256>>>(x, y, 1, n)", "cdiv(n, 8) * 8"),
        ("scale<<<n << 2 & ~3, 256>>>(x, y, 1, n)", "n * 4 // 4 * 4"),
        ("int g = n & ~6; scale<<<g, 256>>>(x, y, 1, n)", "g"),
        ("scale<<<(n > 5) ? std::min(n, 3) : 4, 256>>>(x, y, 1, n)", "min(n, 3) if n > 5 else 4"),
        ("scale<<<n <= 2 * 3 && n != 5 ? 1 : 2, 256>>>(x, y, 1, n)", "1 if n <= 6 and n != 5 else 2"),
        ("scale<<<n >= -n ? 1 : 2, 256>>>(x, y, 1, n)", "1 if n >= -n else 2"),
        ("scale<<<std::max<int>(n, 2) > 5 ? 1 : 2, 256>>>(x, y, 1, n)", "1 if max(n, 2) > 5 else 2"),
        ("if (n > 5) { int n = 7; } scale<<<n, 256>>>(x, y, 1, n)", "n"),
    ],
)
def test_expressions_of_a_launch(launch: str, grid: str) -> None:
    text = f"{SCALE}void run(float* x, float* y, int n) {{ {launch}; }}"
    assert inference(find_kernels(text_unit(text))[0]).contract.grid[0] == grid


@pytest.mark.parametrize(
    ("comment", "shape"),
    [
        ("__global__ void k(const float* p, // (N, 3)\n float* q, int n) { q[0] = f(p); }", ("n", "3")),
        (
            "// p: points [N, N / 2]\n__global__ void k(const float* p, float* q, int n) { q[0] = f(p); }",
            ("n", "cdiv(n, 2)"),
        ),
        ("__global__ void k(const float* p, // (of unknown, sides)\n float* q, int n) { q[0] = f(p); }", ("n",)),
    ],
)
def test_a_comment_gives_the_sides_of_a_parameter(comment: str, shape: tuple[str, ...]) -> None:
    assert inference(find_kernels(text_unit(comment))[0]).contract.args[0].shape == shape


def test_names_of_other_functions_do_not_reach_a_launch() -> None:
    text = (
        SCALE
        + """
void other() { int threads = 32; }
void run(float* x, float* y, int n) { int threads = 512; scale<<<(n + threads - 1) / threads, threads>>>(x, y, 1, n); }
void last() { int threads = 64; }
"""
    )
    assert inference(find_kernels(text_unit(text))[0]).contract.block == ("512",)


@pytest.mark.parametrize(
    "host",
    [
        "int g = 4; g++; LAUNCH",
        "int g = 4; --g; LAUNCH",
        "int g = 4; g <<= 2; LAUNCH",
        "int g = 4; g >>= 1; LAUNCH",
        "int g = 4; g -= n; LAUNCH",
        "int g = 4; g |= 1; LAUNCH",
        "int g = 4; if (n > 9) g = 8; LAUNCH",
        "int g = 4; if (n > 9) n = 2; else g = 8; LAUNCH",
        "int g = 4; if (n > 9) { g = 8; } LAUNCH",
        "int g = 4; if (n > 9) { int h = 3; g++; } LAUNCH",
        "int g = 4; switch (n) { case 1: g = 2; break; default: g = 3; } LAUNCH",
        "int g = 4; switch (n) { case 1: g = 2; break; default: LAUNCH }",
        "int g = 4; cudaOccupancyMaxPotentialBlockSize(&g, &b, scale, 0, 0); LAUNCH",
        "int g = 4; std::cin >> g; LAUNCH",
        "int g = 4; std::swap(g, n); LAUNCH",
        "int g = 4; g = g * 2; LAUNCH",
        "for (int g = 4; g < n; g *= 2) LAUNCH",
        "for (int g = 4; g < n; ++g) { LAUNCH }",
        "for (int g : {4, 8}) { LAUNCH }",
        "int g = 4; while (g < n) { LAUNCH g = g + 1; }",
        "int g = 4; auto run = [&](int g) { LAUNCH }; run(8);",
        "int g = 4; for (auto [g, h] : pairs) { LAUNCH }",
        "int g; LAUNCH",
    ],
)
def test_a_variable_that_changes_has_no_value(host: str) -> None:
    text = f"{SCALE}void run(float* x, float* y, int n, int b) {{ {host.replace('LAUNCH', 'scale<<<g, 64>>>(x, y, 1, n);')} }}"
    found = inference(find_kernels(text_unit(text))[0]).contract
    assert found.grid == ("g",)
    assert all("g" in size for size in found.sizes)


@pytest.mark.parametrize(
    ("host", "grid"),
    [
        ("int g = 4; if (n > 9) { int g = 8; g++; } LAUNCH", "4"),
        ("int g = 4; for (int g = 0; g < n; g++) { h(g); } LAUNCH", "4"),
        ("int g = 4; auto f = [](int g) { g++; }; LAUNCH", "4"),
        ("int t = 256; int g = (n + t - 1) / t; t = 128; LAUNCH", "cdiv(n, 256)"),
        ("int m = n; int g = m; m += 5; LAUNCH", "n"),
        ("int g = 4; cudaMemcpyToSymbol(limit, &g, sizeof(int)); LAUNCH", "4"),
        ("int g = 4; void* args[] = {&x, &g}; LAUNCH", "4"),
        ("if (n > 9) { int g = 8; LAUNCH }", "8"),
        ("switch (n) { case 1: { int g = 2; LAUNCH break; } }", "2"),
    ],
)
def test_a_variable_has_the_value_of_its_own_place(host: str, grid: str) -> None:
    text = f"{SCALE}void other(int g = 3);\nvoid run(float* x, float* y, int n) {{ {host.replace('LAUNCH', 'scale<<<g, 64>>>(x, y, 1, n);')} }}"
    assert inference(find_kernels(text_unit(text))[0]).contract.grid == (grid,)


def test_a_variable_of_the_file_may_change_in_any_function() -> None:
    launch = "void run(float* x, float* y, int n) { scale<<<g, 64>>>(x, y, 1, n); }"
    for change, grid in (("void other() { g = 5; }", "g"), ("void other(int g) { g = 5; }", "4")):
        text = f"{SCALE}int g = 4;\n{launch}\n{change}"
        assert inference(find_kernels(text_unit(text))[0]).contract.grid == (grid,)


def test_a_macro_with_two_definitions_has_no_value() -> None:
    launch = "void run(float* x, float* y, int n) { scale<<<n, THREADS>>>(x, y, 1, n); }"
    either = f"{SCALE}#if FAST\n#define THREADS 512\n#else\n#define THREADS 128\n#endif\n{launch}"
    assert inference(find_kernels(text_unit(either))[0]).contract.block == ("256",)
    again = f"{SCALE}#define THREADS 512\n#undef THREADS\n#define THREADS 128\n{launch}"
    assert inference(find_kernels(text_unit(again))[0]).contract.block == ("128",)


@pytest.mark.parametrize(
    ("body", "direction"),
    [
        ("if (i < n) x[i] = x[i] * 2;", "inout"),
        ("if (i < n) x[i] += 1;", "inout"),
        ("if (i < n) ++x[i];", "inout"),
        ("if (i < n) atomicAdd(&x[i], 1.0f);", "inout"),
        ("if (i < n) atomicAdd(x + i, 1.0f);", "inout"),
        ("float* row = x + blockIdx.x; if (i < n) row[i] *= 2;", "inout"),
        ("if (i % 2) x[i] = 1;", "out"),
        ("store(x, i);", "out"),
    ],
)
def test_an_array_that_its_kernel_reads_is_no_mere_output(body: str, direction: str) -> None:
    text = f"""__global__ void k(float* x, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}
void run(int n) {{ float* d; cudaMalloc(&d, n * sizeof(float)); k<<<(n + 63) / 64, 64>>>(d, n); }}
"""
    found = inference(find_kernels(text_unit(text))[0]).contract
    assert (found.args[0].direction, found.args[0].shape) == (direction, ("n",))


PYTHON = '''import cupy as cp
kernel = cp.RawKernel(r"""
extern "C" __global__ void add(float* x, int n, int m) { int i = blockIdx.x * 32 + threadIdx.x; if (i % 2) x[i] = m; }
""", "add")
'''


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", "inout float32[n] ~ zeros"),
        ("print(x.sum(), x[0])", "inout float32[n] ~ zeros"),
        ("x[:] = 3", "inout float32[n]"),
        ("x[0] += 3", "inout float32[n]"),
        ("x.fill(3)", "inout float32[n]"),
        ("x.reshape(2, -1)[0] = 3", "inout float32[n]"),
        ("cp.copyto(x, y)", "inout float32[n]"),
        ("cp.add(y, y, out=x)", "inout float32[n]"),
        ("other((1,), (32,), (x, 64))", "inout float32[n]"),
    ],
)
def test_an_array_of_zeros_that_python_changes_is_none(change: str, told: str, tmp_path: Path) -> None:
    text = f"{PYTHON}n = 64\nx = cp.zeros(n, dtype=cp.float32)\n{change}\nkernel((2,), (32,), (x, n, 7))\n"
    assert f'x = "{told}"' in "\n".join(told_in(tmp_path, {"a.py": text}, "a.py"))


def test_an_empty_array_that_python_fills_is_no_mere_output(tmp_path: Path) -> None:
    for change, told in (("", 'x = "out'), ("x.fill(3)", 'x = "inout')):
        text = f"{PYTHON}n = 64\nx = cp.empty(n, dtype=cp.float32)\n{change}\nkernel((2,), (32,), (x, n, 7))\n"
        assert told in "\n".join(told_in(tmp_path, {"a.py": text}, "a.py"))


def test_a_size_whose_name_is_part_of_a_word_decides_nothing(tmp_path: Path) -> None:
    text = f"{PYTHON}n = 64\nkernel((2,), (32,), (cp.zeros(n), n, min(7, 9)))\n"
    assert "sizes = [{ n = 64, m = 7 }]  # inferred: line 6" in told_in(tmp_path, {"a.py": text}, "a.py")


@pytest.mark.parametrize(
    "grid",
    [
        "(" * 250 + "n" + ")" * 250,
        "n ? " * 500 + "1" + " : 2" * 500,
        " << ".join(["n"] * 900),
        " && ".join(["n"] * 900) + " ? 1 : 2",
        "1" + " + 1" * 5000,
        "min(" * 300 + "n" + ", 1)" * 300,
        "f(" * 300 + "n" + ")" * 300,
        "(int)" * 900 + "n",
        "-" * 900 + "n",
        "(" * 900,
        "(" * 3000 + "n" + ")" * 3000,
    ],
)
def test_an_expression_that_is_nested_too_deeply_is_not_known(grid: str) -> None:
    text = f"{SCALE}int f(int a) {{ return a + 1; }}\nvoid run(float* x, float* y, int n) {{ scale<<<{grid}, 256>>>(x, y, 1, n); }}"
    assert inference(find_kernels(text_unit(text))[0]).contract.grid[0] in ("cdiv(n, block)", "n")


def test_a_change_of_another_file_is_seen(tmp_path: Path) -> None:
    template = "template <int T> __global__ void k(float* x, int n) { x[blockIdx.x * T + threadIdx.x] = n; }\n"
    host = '#include "k.cuh"\nvoid run(float* x, int n) { k<T><<<n, T>>>(x, n); }\n'
    for threads in (64, 128):
        files = {"k.cuh": template, "main.cu": host.replace("T", str(threads))}
        found = told_in(tmp_path, files, "k.cuh")
        assert found[2] == f"block = {threads}  # inferred: main.cu:2"
        assert found[3].startswith(f'instances = ["k<{threads}>"]')


@pytest.mark.parametrize(
    ("lines", "block"),
    [
        ("#if 0\nDEAD\n#endif\nLIVE", "64"),
        ("#if 0\nDEAD\n#else\nLIVE\n#endif", "64"),
        ("#if 1\nLIVE\n#else\nDEAD\n#endif", "64"),
        ("#if 0\n#if FAST\nDEAD\n#else\nDEAD\n#endif\n#endif\nLIVE", "64"),
        ("#if FAST\nLIVE\n#elif 0\nDEAD\n#endif", "64"),
        ("#  if 0 // don't\nDEAD \\\n#endif\nDEAD\n#endif\nLIVE", "64"),
        ("#if 0 + FAST\nDEAD\n#endif\nLIVE", "32"),
        ("/*\n#if 0\n*/\nDEAD\nLIVE", "32"),
    ],
)
def test_code_that_is_left_out_launches_nothing(lines: str, block: str) -> None:
    dead, live = "scale<<<n, 32>>>(x, y, 1, n);", "scale<<<n, THREADS>>>(x, y, 1, n);"
    start = "#define THREADS 64\n#if 0\n#define THREADS 96\n#endif\n"
    text = f"{SCALE}{start}void run(float* x, float* y, int n) {{\n{lines}\n}}\n".replace("DEAD", dead).replace(
        "LIVE", live
    )
    kernel = find_kernels(text_unit(text))[0]
    assert inference(kernel).contract.block == (block,)
    assert [site.block for site in kernel.launches][:1] == ["32" if block == "32" else "THREADS"]


@pytest.mark.parametrize(
    ("functions", "grid"),
    [
        ("int g(int a) { return a / 2; }", "n // 2"),
        ("int g(int a) { if (a > 9) a = 9; return a; }", "h"),
        ("int g(int a) { if (a > 9) { return a; } }", "h"),
        ("int g(int a) { int b = a; if (b > 9) b = 9; return b; }", "h"),
        ("struct A { int g(int a) { return 1; } }; struct B { int g(int a) { return 2; } };", "h"),
        ("int g(int a) { return 3; } int g(int a, int b) { return 4; }", "3"),
        ("dim3 g(int a) { dim3 d(a, 2); return d; }", "n"),
    ],
)
def test_a_function_with_one_value_is_read(functions: str, grid: str) -> None:
    host = "void run(float* x, float* y, int n) { const auto h = g(n); scale<<<h, 64>>>(x, y, 1, n); }"
    assert inference(find_kernels(text_unit(f"{SCALE}{functions}\n{host}"))[0]).contract.grid[0] == grid


def test_a_host_variable_is_not_mixed_up_with_a_parameter_of_its_name() -> None:
    text = f"{SCALE}void run(float* x, float* y, int n, int m) {{ scale<<<n, 64>>>(x, y, 1, m); }}"
    assert told(text)[1] == 'grid = "cdiv(n, block)"  # a guess'


def test_a_long_name_in_parentheses_takes_no_time() -> None:
    text = f"{SCALE}void run(float* x, float* y, int n) {{ scale<<<n, 64>>>(({'longName' * 9} + offset), y, 1, n); }}"
    assert told(text)[1] == 'grid = "n"  # inferred: line 5'


@pytest.mark.parametrize(
    "host",
    [
        "void run(const torch::Tensor& x, float* y, int n) { scale<<<x.size(0), 64>>>(x.data_ptr<float>(), y, 1, n);",
        "void run(float* x, float* y, int n) { scale<<<std::, 64>>>(x, y, 1, n); }",
        "void run(float* x, float* y, int n) { auto k = &scale; k<<<n>>>(x, y, 1, n); }",
        "void run(float* x, float* y, int n) { int g[3] =",
        "void run(float* x, float* y, int n) { scale<<<a */**/ b * c + d, 64>>>(x, y, 1, a */**/ b); }",
        "void run( { scale<<<((n + 2, 256>>>(x, n); scale<<<, 256>>>(x); scale<<<n>>>(x, n); scale<<<n, 2>>>();",
    ],
)
def test_host_code_that_is_being_written_is_no_error(host: str) -> None:
    assert told(f"{SCALE}{host}")[1] == 'grid = "cdiv(n, block)"  # a guess'


def test_a_size_that_is_not_known_beside_one_that_is_is_called_a_guess() -> None:
    text = f"{GRID_OF_ROWS}void run(float* x, float* b, int h) {{ rows<<<h, 64>>>(x, b, h, 80); }}"
    assert told(text)[0].endswith("# inferred: line 4, height is a guess")


def test_a_guessed_grid_of_one_name_is_called_a_guess() -> None:
    assert told(GRID_OF_ROWS)[1] == 'grid = "height"  # a guess'


def test_a_pitch_is_no_size_of_its_own() -> None:
    text = "__global__ void k(unsigned char* x, int width, int height, int pitch) { x[blockIdx.y * pitch + threadIdx.x] = 1; }\n"
    assert told(text)[-1] == 'pitch = "int32 = width"  # a guess'
    host = "void run(int w, int h) { unsigned char* x; size_t pitch; cudaMallocPitch((void**)&x, &pitch, 2 * w, h); k<<<dim3(1, h), w>>>(x, w, h, (int)pitch); }"
    assert told(text + host)[-1] == 'pitch = "int32 = 2 * width"  # inferred: line 2'


def test_guessed_sizes_are_multiples_of_what_the_grid_divides_them_by() -> None:
    kernel = "__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) { c[m] = a[n] * b[k]; }\n"
    host = (
        "int main(int argc, char** argv) {\n  size_t m = atoi(argv[1]), n = atoi(argv[2]), k = atoi(argv[3]);\n"
        "  dim3 grid(n / 128, m / 128), block(16, 16);\n  product<<<grid, block>>>(a, b, c, m, n, k);\n}\n"
    )
    found = told(kernel + host)
    assert found[0].startswith("sizes = [{ m = 128, n = 128, k = 32 }")
    assert found[1].startswith('grid = ["n // 128", "m // 128"]')


def test_guessed_sizes_of_a_square_fit_into_memory() -> None:
    kernel = "__global__ void fill(char* x, int side) { x[(blockIdx.x * side + threadIdx.x) * 3] = 1; }\n"
    host = "void run(int side) { char *x; cudaMalloc(&x, side * side * 3); fill<<<side, 32>>>(x, side); }\n"
    (contract,) = [inference(one).contract for one in find_kernels(text_unit(kernel + host))]
    assert all(size["side"] ** 2 * 3 < 2**22 for size in contract.sizes)


def test_squares_of_sizes_that_host_code_gives_fit_into_memory() -> None:
    text = """__global__ void scale(float* x, int side) { x[blockIdx.x * side + threadIdx.x] *= 2; }
int main() {
  int side = 8192;
  float* x;
  cudaMalloc(&x, side * side * sizeof(float));
  scale<<<side, 64>>>(x, side);
}
"""
    assert told(text)[0] == "sizes = [{ side = 1024 }]  # inferred: line 3, side = 8192 there"


def test_enumerations_and_types_of_other_files_are_known(tmp_path: Path) -> None:
    kernel = (
        '#include "types.h"\nenum class Kind : unsigned char { plain, fast };\ntypedef enum { up, down } Way;\n'
        "__global__ void k(real* x, Kind kind, Way way, Mode mode, int n) { x[n] = 1; }\n"
    )
    header = "#ifdef WIDE\ntypedef double real;\n#else\ntypedef double real;\n#endif\nenum Mode { slow, quick };\n"
    found = told_in(tmp_path, {"k.cu": kernel, "types.h": header}, "k.cu")
    assert any(line.startswith('x = "inout float64[n]"') for line in found)
    assert [line.partition("  #")[0] for line in found[-4:]] == [
        'kind = "uint8 = 0"',
        'way = "int32 = 0"',
        'mode = "int32 = 0"',
        'n = "int32"',
    ]


def test_a_comment_declares_nothing() -> None:
    kernel = "template <typename T> __global__ void shift(T* a, int n) { a[n] += 1; }\n"
    host = "template <typename T> void run(int n) {\n  // NB: a(33 * n) for strides\n  T *a;\n  shift<<<n, 1>>>(a, n);\n}\nvoid go() { run<double>(4); }\n"
    assert any(line.startswith('instances = ["shift<double>"]') for line in told(kernel + host))


def test_a_launch_by_pycuda_gives_directions_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(
        "import numpy as np\nimport pycuda.driver as cuda\nfrom pycuda.compiler import SourceModule\n"
        f"module = SourceModule('''{SCALE}''')\n"
        "scale = module.get_function('scale')\nx = np.random.randn(900).astype(np.float32)\ny = np.zeros_like(x)\n"
        "scale(cuda.In(x), cuda.Out(y), np.float32(2.5), np.int32(900), block=(256, 1, 1), grid=(4, 1))\n"
    )
    found = [line.partition("  #")[0] for line in lines(load_kernel(str(tmp_path / "k.py")))]
    assert found == [
        "sizes = [{ n = 900 }]",
        "grid = [4, 1]",
        "block = [256, 1, 1]",
        "[args]",
        'x = "in float32[n]"',
        'y = "out float32[n]"',
        'a = "float32 = 2.5"',
        'n = "int32"',
    ]


@pytest.mark.parametrize(
    "configured",
    [
        "cudaLaunchConfig_t config = {}; config.gridDim = (n + 127) / 128; config.blockDim = 128; config.dynamicSmemBytes = 64;",
        "cudaLaunchConfig_t config{dim3((n + 127) / 128), dim3(128), 64, stream};",
        "cudaLaunchConfig_t config = {.gridDim = (n + 127) / 128, .blockDim = 128, .dynamicSmemBytes = 64};",
    ],
)
def test_a_launch_with_a_configuration_is_read(configured: str) -> None:
    text = (
        SCALE
        + f"""
int main() {{
  int n = 5000; float *x, *y; cudaMalloc(&x, n * sizeof(float)); cudaMalloc(&y, n * sizeof(float));
  {configured}
  cudaLaunchKernelEx(&config, scale, x, y, 0.5f, n);
}}
"""
    )
    found = told(text)
    assert found[0].startswith("sizes = [{ n = 5000 }]")
    assert found[1].startswith('grid = "cdiv(n, 128)"') or found[1].startswith('grid = "cdiv(n, block)"')
    assert found[2].startswith("block = 128")
    assert found[3].startswith("shared = 64")


def test_a_pointer_to_an_array_has_its_sides() -> None:
    text = "__global__ void k(const double (*p)[4][8], double* y, int n) { int i = threadIdx.x; if (i < n) y[i] = p[i][1][2]; }"
    assert any(line.startswith('p = "in float64[n, 4, 8]"') for line in told(text))


def test_a_struct_that_cannot_be_guessed_has_the_table_that_a_contract_needs() -> None:
    text = "struct P { float* x; Other o; int n; };\n__global__ void k(const __grid_constant__ P p) { p.x[threadIdx.x] = p.n; }"
    with pytest.raises(ContractError) as caught:
        told(text)
    assert 'p = { x = "inout float32[n]", o = "float32 = 1", n = "int32 = 1" }' in (caught.value.hint or "")


def test_a_kernel_without_sizes_has_the_number_of_elements_that_its_arrays_have() -> None:
    text = """__global__ void sum(float* total, const float* x) { atomicAdd(total, x[blockIdx.x * 64 + threadIdx.x]); }
int main() {
  const int COUNT = 128;
  const int BYTES = COUNT * sizeof(float);
  float host[COUNT], *x, *total;
  cudaMalloc((void**)&x, BYTES);
  cudaMalloc(&total, sizeof(float));
  cudaMemset(total, 0, sizeof(float));
  cudaMemcpy(x, host, BYTES, cudaMemcpyHostToDevice);
  sum<<<COUNT / 64, 64>>>(total, x);
}
"""
    assert told(text) == [
        "sizes = [{ n = 128 }]  # inferred: lines 6 and 9",
        "grid = 2  # inferred: lines 3 and 10",
        "block = 64  # inferred: line 10",
        "[args]",
        'total = "inout float32[1] ~ zeros"  # inferred: lines 7 and 8',
        'x = "in float32[n]"  # inferred: lines 6 and 9',
    ]


def test_vectors_and_states_of_generators_are_inferred() -> None:
    text = "__global__ void k(float2* y, float2 v, curandState* s, off_t offset, int n) { y[threadIdx.x] = v; }"
    found = told(text)
    assert found[4:] == [
        'y = "inout float32[n * 2]"  # a guess',
        'v = { x = "float32 = 1.0", y = "float32 = 1.0" }  # a guess',
        's = "inout uint32[n * 12]"  # a guess',
        'offset = "int64 = 1"  # a guess',
        'n = "int32"',
    ]


@pytest.mark.parametrize(
    ("branches", "dtype"),
    [
        ("#ifdef WIDE\n#define FP double // wide\n#else\n#define FP float\n#endif\n", "float32"),
        ("#define WIDE\n#if defined(WIDE)\ntypedef double FP;\n#else\ntypedef float FP;\n#endif\n", "float64"),
        ("#ifndef WIDE\nusing FP = float;\n#else\nusing FP = double;\n#endif\n", "float32"),
        ("#if 0\n#define FP double\n#else\n#define FP float\n#endif\n", "float32"),
    ],
)
def test_a_type_of_branches_is_that_of_a_build_without_options(branches: str, dtype: str) -> None:
    kernel = "__global__ void k(FP* x, int n) { x[threadIdx.x] = 1; }\n"
    assert any(line.startswith(f'x = "inout {dtype}[') for line in told(branches + kernel))


def test_a_type_that_only_the_build_decides_is_not_guessed() -> None:
    branches = "#if PRECISION == 64\n#define FP double\n#else\n#define FP float\n#endif\n"
    with pytest.raises(ContractError, match="cannot be inferred"):
        told(branches + "__global__ void k(FP* x, int n) { x[threadIdx.x] = 1; }\n")


@pytest.mark.parametrize(
    ("body", "direction"),
    [
        ("x[i] = twice(x[i]);", "inout"),
        ("x[i].x = x[i].y;", "inout"),
        ("x[i] = make_float2(1, 2);", "out"),
        ("x[i].x = 1; x[i].y = 2;", "out"),
    ],
)
def test_an_array_that_may_be_read_is_no_output_though_nothing_fills_it(body: str, direction: str) -> None:
    text = (
        f"__global__ void k(float2* x, int n) {{ int i = threadIdx.x; if (i < n) {{ {body} }} }}\n"
        "int main() { float2* x; cudaMalloc(&x, 640 * sizeof(float2)); k<<<1, 640>>>(x, 640); }\n"
    )
    assert next(line for line in told(text) if line.startswith("x =")).startswith(f'x = "{direction} ')
