// Two matrix products. The naive one lets neighbouring threads take neighbouring rows, so that no access is coalesced;
// the tiled one is judged against it.
#include <iostream>
#include <vector>
#include <cuda_runtime.h>

#define TILE 16

// /// kernelmate
// kernel = "matmul_naive"
// sizes = [{ m = 192, n = 192, k = 192 }, { m = 37, n = 53, k = 61 }, { m = 1, n = 1, k = 1 }]
// grid = ["cdiv(m, block_x)", "cdiv(n, block_y)"]
// block = [16, 16]
// reference = "reference.py:matmul"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul_naive(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

// /// kernelmate
// kernel = "matmul_tiled"
// sizes = [{ m = 192, n = 192, k = 192 }, { m = 37, n = 53, k = 61 }, { m = 1, n = 1, k = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "matmul_naive"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int col = blockIdx.x * TILE + threadIdx.x;

  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    const int ka = start + threadIdx.x, kb = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = kb < k && col < n ? b[kb * n + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}

int main() {
  const int size = 192;
  std::vector<float> ones(size * size, 1.0f), result(size * size);
  const size_t bytes = ones.size() * sizeof(float);
  float *a, *b, *c;
  cudaMalloc(&a, bytes);
  cudaMalloc(&b, bytes);
  cudaMalloc(&c, bytes);
  cudaMemcpy(a, ones.data(), bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(b, ones.data(), bytes, cudaMemcpyHostToDevice);

  const dim3 block(TILE, TILE), grid((size + TILE - 1) / TILE, (size + TILE - 1) / TILE);
  matmul_naive<<<grid, block>>>(a, b, c, size, size, size);
  matmul_tiled<<<grid, block>>>(a, b, c, size, size, size);
  cudaMemcpy(result.data(), c, bytes, cudaMemcpyDeviceToHost);
  std::cout << "c[0][0] = " << result[0] << ", expected " << size << "\n";
  cudaFree(a);
  cudaFree(b);
  cudaFree(c);
}
