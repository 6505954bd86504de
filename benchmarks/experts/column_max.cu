// Eight columns (one sector) per block of 128 rows at a time, so that 1024 columns fill the GPU.

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 8)"
// block = 1024
// require = ["rows > 0"]
// reference = "../naive/reference.py:column_max"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void column_max(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  __shared__ float part[32][8];
  int lane = threadIdx.x % 32, c = blockIdx.x * 8 + threadIdx.x % 8;
  float m = c < cols ? x[c] : -INFINITY;  // NaN only where the column has nothing else
  if (c < cols) {
#pragma unroll 8
    for (int r = threadIdx.x / 8; r < rows; r += 128) m = fmaxf(m, x[(size_t)r * cols + c]);
  }
  m = fmaxf(m, __shfl_xor_sync(~0u, m, 8));
  m = fmaxf(m, __shfl_xor_sync(~0u, m, 16));
  if (lane < 8) part[threadIdx.x / 32][lane] = m;
  __syncthreads();
  if (threadIdx.x < 8 && c < cols) {
    for (int w = 1; w < 32; w++) m = fmaxf(m, part[w][lane]);
    out[c] = m;
  }
}
