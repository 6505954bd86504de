"""Sides, parts and sizes of arrays that contracts infer from subscripts and from host code."""

from __future__ import annotations

import pytest

from kernelmate.source import find_kernels, inference, text_unit
from tests.unit.source.test_infer_host import SCALE, told


def test_arrays_with_subscripts_made_of_integers_that_are_read_are_known() -> None:
    text = """
    __global__ void k(const int* offsets, const float* x, float* y, float* z, int n) {
      __shared__ float part[32];
      for (int i = offsets[n]; i < n; i++) { y[i] = x[threadIdx.x]; int at = i % 32; part[at] = 1; }
      z[n] = part[threadIdx.x];
    }
    """
    assert inference(find_kernels(text_unit(text))[0]).contract.indexed == ("y", "part")


@pytest.mark.parametrize(
    ("loop", "size"),
    [
        ("for (int k = 0; k < N; k++) sum += a[row * N + k] * b[k * N + col];", 128),
        ("for (int k = threadIdx.x; k < N; k += 32) sum += a[k];", 1024),
        ("for (int k = 0; k < 3; k++) sum += a[row * N + col];", 1024),
    ],
)
def test_sizes_of_host_code_are_halved_where_each_thread_loops_over_one(loop: str, size: int) -> None:
    text = f"""
__global__ void k(const float* a, const float* b, float* c, int N) {{
  int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
  float sum = 0; {loop} c[row * N + col] = sum;
}}
int main() {{ int N = 1024; float *a, *b, *c; cudaMalloc(&a, N * N * 4); k<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c, N); }}
"""
    assert told(text)[0].partition("  #")[0] == f"sizes = [{{ N = {size} }}]"


@pytest.mark.parametrize(
    ("body", "entry"),
    [
        ("x[i] = y[0]; x[i + n] = 1; x[i + 2 * n] = 2;", 'x = "out float32[3, n]"'),
        ("x[i] += x[n + i];", 'x = "inout float32[2, n]"'),
        ("x[i] = x[i + 2 * n];", 'x = "inout float32[n]"  # a guess'),
    ],
)
def test_parts_of_an_array_that_offsets_name_are_its_first_dimension(body: str, entry: str) -> None:
    text = f"__global__ void k(float* x, const float* y, int n) {{ int i = blockIdx.x * 64 + threadIdx.x; if (i < n) {{ {body} }} }}"
    assert any(line.startswith(entry) for line in told(text)), told(text)


@pytest.mark.parametrize("load", ["in[AT]", "__ldg(&in[AT])", "__ldg(in + AT)", "(float)__ldcs(&in[AT])"])
@pytest.mark.parametrize("row", ["row * (int64_t)d", "row * int64_t(d)", "static_cast<std::size_t>(row) * d"])
def test_parts_of_each_row_are_a_dimension_within_it(load: str, row: str) -> None:
    text = f"""
__global__ void gate(float* out, const float* in, const int d) {{
  const int row = blockIdx.x;
  const int64_t at = {row}; const int64_t wide = at * 2;
  for (int i = threadIdx.x; i < d; i += blockDim.x)
    out[at + i] = {load.replace("AT", "wide + i")} * {load.replace("AT", "wide + d + i")};
}}
"""
    found = told(text)
    assert 'out = "out float32[rows, d]"  # inferred: its subscripts' in found
    assert 'in = "in float32[rows, 2, d]"  # inferred: its subscripts' in found


@pytest.mark.parametrize(
    ("parameter", "launch", "sizes"),
    [
        ("", "<<<12, 256>>>(x)", ["{ n = 3072 }"]),
        ("", "<<<dim3(4, 3), dim3(16, 2)>>>(x)", ["{ n = 384 }"]),
        (", int n", "<<<12, 256>>>(x, get())", ["{ n = 65536 }", "{ n = 853 }"]),
    ],
)
def test_arrays_of_a_fixed_launch_have_an_element_for_each_thread(
    parameter: str, launch: str, sizes: list[str]
) -> None:
    text = f"""
__global__ void k(float* x{parameter}) {{ x[threadIdx.x + blockIdx.x * blockDim.x] += 1.0f; }}
void run(float* x) {{ k{launch}; }}
"""
    assert told(text)[0].partition("  #")[0] == f"sizes = [{', '.join(sizes)}]"


def test_arrays_of_a_fixed_launch_are_not_made_smaller() -> None:
    text = """
const int N = 1 << 12, M = 1 << 11;
__global__ void k(const int* x, int* y) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  y[row * N + col] = x[row * N + col] + 1;
}
int main() {
  int *x, *y;
  cudaMalloc(&x, M * N * sizeof(int)); cudaMalloc(&y, M * N * sizeof(int));
  dim3 block(32, 32), grid(N / 32, M / 32);
  k<<<grid, block>>>(x, y);
}
"""
    assert told(text)[0].partition("  #")[0] == "sizes = [{ n = 8388608 }]"


def test_a_number_of_blocks_is_a_dimension_of_what_they_read() -> None:
    text = """
__global__ void sums(int n, const double* x, double* y) {
  double sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum += x[blockIdx.x * n + i];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
void run(int count, const double* x, double* y) { sums<<<3, 32>>>(count, x, y); }
"""
    found = told(text)
    assert any(line.startswith('x = "in float64[3, n]"') for line in found), found
    assert any(line.startswith('y = "out float64[3]"') for line in found), found


def test_neighbouring_rows_are_not_parts_of_one_row() -> None:
    text = """
__global__ void k(float* out, const float* in, int d) {
  int row = blockIdx.x;
  for (int i = threadIdx.x; i < d; i += blockDim.x) out[row * d + i] = in[row * d + i] + in[row * d + d + i];
}
"""
    assert any(line.startswith('in = "in float32[rows, d]"  # a guess') for line in told(text)), told(text)


def test_a_pointer_with_an_offset_is_the_rest_of_its_array() -> None:
    text = """
__global__ void pick(const float* x, const int* index, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[index[i]] = x[index[i]];
}
int main() {
  const int count = 4096;
  float *d, *e; int* k;
  cudaMalloc(&d, 2 * count * sizeof(float));
  cudaMalloc(&e, 3 * count * sizeof(float));
  cudaMalloc(&k, count * sizeof(int));
  float* late = &e[count];
  pick<<<count / 256, 256>>>(GIVEN, k, late, count);
}
"""
    for given in ("d + count", "&d[count]", "(d + count)", "(const float*)d + count"):
        found = told(text.replace("GIVEN", given))
        assert found[4] == 'x = "in float32[n * 2 - n]"  # inferred: line 9', given
        assert found[6] == 'y = "inout float32[n * 3 - n]"  # inferred: lines 10 and 12'
    unknown = told(
        text.replace("GIVEN", "(float*)(d + s * 17)").replace("  pick", "  for (int s = 0; s < 9; s++) pick")
    )
    assert unknown[4] == 'x = "in float32[n, 2]"  # inferred: line 9'


def test_a_part_that_the_subscripts_bound_has_their_sides() -> None:
    text = (
        SCALE
        + """
int main() {
  const int count = 4096;
  float* d = new float[count * 3];
  scale<<<count / 256, 256>>>(d, d + count, 2.0f, count);
}
"""
    )
    assert told(text)[5] == 'y = "out float32[n]"  # inferred: its subscripts'


def test_a_container_with_an_offset_is_the_rest_of_it() -> None:
    text = (
        SCALE.replace("x[i]", "x[i % 7]")
        + """
int main() {
  const int count = 4096;
  thrust::device_vector<float> x(count * 2), y(count);
  scale<<<count / 256, 256>>>(thrust::raw_pointer_cast(x.data()) + count, y.data().get(), 2.0f, count);
}
"""
    )
    assert told(text)[4] == 'x = "in float32[n * 2 - n]"  # inferred: line 8'
