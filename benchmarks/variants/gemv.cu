// variants of gemv_thread: BLOCK=64 | BLOCK=256
// variants of gemv_warp: BLOCK=32 | BLOCK=128 | BLOCK=512
// variants of gemv_warp_vector: BLOCK=64 | BLOCK=256
// variants of gemv_block: BLOCK=64 | BLOCK=256 | BLOCK=1024
#ifndef BLOCK
#define BLOCK 128
#endif

// /// kernelmate
// sizes = [{ rows = 4096, cols = 1024, BLOCK = 256 }]
// grid = "cdiv(rows, BLOCK)"
// block = "BLOCK"
// reference = "a @ x"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void gemv_thread(const float* a, const float* x, float* y, int rows, int cols) {
  const int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = 0; i < cols; ++i) sum += a[(size_t)row * cols + i] * x[i];
  y[row] = sum;
}

// /// kernelmate
// sizes = [{ rows = 4096, cols = 1024, BLOCK = 128 }]
// grid = "cdiv(rows * 32, BLOCK)"
// block = "BLOCK"
// reference = "a @ x"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void gemv_warp(const float* a, const float* x, float* y, int rows, int cols) {
  const int row = (blockIdx.x * BLOCK + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = lane; i < cols; i += 32) sum += a[(size_t)row * cols + i] * x[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) y[row] = sum;
}

// /// kernelmate
// sizes = [{ rows = 4096, cols = 1024, BLOCK = 128 }]
// grid = "cdiv(rows * 32, BLOCK)"
// block = "BLOCK"
// reference = "a @ x"
// require = ["cols % 4 == 0"]
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void gemv_warp_vector(const float* a, const float* x, float* y, int rows, int cols) {
  const int row = (blockIdx.x * BLOCK + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float4* p = reinterpret_cast<const float4*>(a + (size_t)row * cols);
  const float4* q = reinterpret_cast<const float4*>(x);
  float sum = 0.0f;
  for (int i = lane; i < cols / 4; i += 32) {
    const float4 u = p[i], v = q[i];
    sum += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) y[row] = sum;
}

// /// kernelmate
// sizes = [{ rows = 4096, cols = 1024, BLOCK = 128 }]
// grid = "rows"
// block = "BLOCK"
// reference = "a @ x"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void gemv_block(const float* a, const float* x, float* y, int cols) {
  __shared__ float part[BLOCK];
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += BLOCK) sum += a[(size_t)blockIdx.x * cols + i] * x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
