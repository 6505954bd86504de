// variants of matmul_naive: BX=8 BY=8 | BX=16 BY=16 | BX=32 BY=8 | BX=32 BY=32 | BX=128 BY=1
// variants of matmul_by_columns: BX=16 BY=16
// variants of matmul_tiled: TILE=8 | TILE=16 | TILE=32
// variants of matmul_registers: EACH=2 | EACH=4 | EACH=8
#ifndef TILE
#define TILE 16
#endif
#ifndef EACH
#define EACH 4
#endif

// /// kernelmate
// sizes = [{ m = 512, n = 512, k = 512, BX = 16, BY = 16 }]
// grid = ["cdiv(n, BX)", "cdiv(m, BY)"]
// block = ["BX", "BY"]
// reference = "a @ b"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul_naive(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

// Neighbouring lanes take neighbouring rows: their accesses lie a whole row apart.
// /// kernelmate
// sizes = [{ m = 512, n = 512, k = 512, BX = 16, BY = 16 }]
// grid = ["cdiv(m, BX)", "cdiv(n, BY)"]
// block = ["BX", "BY"]
// reference = "a @ b"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul_by_columns(const float* a, const float* b, float* c, int m, int n, int k) {
  const int col = blockIdx.y * blockDim.y + threadIdx.y, row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

// /// kernelmate
// sizes = [{ m = 512, n = 512, k = 512, TILE = 16 }]
// grid = ["cdiv(n, TILE)", "cdiv(m, TILE)"]
// block = ["TILE", "TILE"]
// reference = "a @ b"
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
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
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

// Each thread keeps EACH x EACH results in registers.
// /// kernelmate
// sizes = [{ m = 512, n = 512, k = 512, EACH = 4 }]
// grid = ["cdiv(n, 16 * EACH)", "cdiv(m, 16 * EACH)"]
// block = [16, 16]
// require = ["m % (16 * EACH) == 0", "n % (16 * EACH) == 0", "k % 16 == 0"]
// reference = "a @ b"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul_registers(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[16][16 * EACH];
  __shared__ float tile_b[16][16 * EACH];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 * EACH, col = blockIdx.x * 16 * EACH;
  float sum[EACH][EACH] = {};
  for (int start = 0; start < k; start += 16) {
    for (int i = 0; i < EACH; ++i) {
      tile_a[x][y + 16 * i] = a[(row + y + 16 * i) * k + start + x];
      tile_b[y][x + 16 * i] = b[(start + y) * n + col + x + 16 * i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i)
#pragma unroll
      for (int p = 0; p < EACH; ++p)
#pragma unroll
        for (int q = 0; q < EACH; ++q) sum[p][q] += tile_a[i][y + 16 * p] * tile_b[i][x + 16 * q];
    __syncthreads();
  }
  for (int p = 0; p < EACH; ++p)
    for (int q = 0; q < EACH; ++q) c[(row + y + 16 * p) * n + col + x + 16 * q] = sum[p][q];
}
