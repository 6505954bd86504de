// variants of softmax_tree: BLOCK=64 | BLOCK=128 | BLOCK=256 | BLOCK=512 | BLOCK=1024
// variants of softmax_shuffle: BLOCK=64 | BLOCK=128 | BLOCK=256 | BLOCK=1024
// variants of softmax_warp: BLOCK=32 | BLOCK=128 | BLOCK=512
#ifndef BLOCK
#define BLOCK 256
#endif

// /// kernelmate
// sizes = [{ rows = 2048, cols = 1024, BLOCK = 256 }]
// grid = "rows"
// block = "BLOCK"
// reference = "np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void softmax_tree(const float* x, float* y, int cols) {
  __shared__ float part[BLOCK];
  const float* row = x + (size_t)blockIdx.x * cols;
  float most = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += BLOCK) most = fmaxf(most, row[i]);
  part[threadIdx.x] = most;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  most = part[0];
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += BLOCK) sum += expf(row[i] - most);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  const float scale = 1.0f / part[0];
  for (int i = threadIdx.x; i < cols; i += BLOCK) y[(size_t)blockIdx.x * cols + i] = expf(row[i] - most) * scale;
}

// /// kernelmate
// sizes = [{ rows = 2048, cols = 1024, BLOCK = 256 }]
// grid = "rows"
// block = "BLOCK"
// reference = "np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void softmax_shuffle(const float* x, float* y, int cols) {
  __shared__ float part[32];
  const float* row = x + (size_t)blockIdx.x * cols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float most = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += BLOCK) most = fmaxf(most, row[i]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  if (lane == 0) part[warp] = most;
  __syncthreads();
  most = part[0];
  for (int i = 1; i < BLOCK / 32; ++i) most = fmaxf(most, part[i]);
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += BLOCK) sum += expf(row[i] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < BLOCK / 32; ++i) sum += part[i];
  const float scale = 1.0f / sum;
  for (int i = threadIdx.x; i < cols; i += BLOCK) y[(size_t)blockIdx.x * cols + i] = expf(row[i] - most) * scale;
}

// /// kernelmate
// sizes = [{ rows = 2048, cols = 1024, BLOCK = 128 }]
// grid = "cdiv(rows * 32, BLOCK)"
// block = "BLOCK"
// reference = "np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void softmax_warp(const float* x, float* y, int rows, int cols) {
  const int lane = threadIdx.x % 32, number = (blockIdx.x * BLOCK + threadIdx.x) / 32;
  if (number >= rows) return;
  const float* row = x + (size_t)number * cols;
  float most = -INFINITY;
  for (int i = lane; i < cols; i += 32) most = fmaxf(most, row[i]);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
  float sum = 0.0f;
  for (int i = lane; i < cols; i += 32) sum += expf(row[i] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float scale = 1.0f / sum;
  for (int i = lane; i < cols; i += 32) y[(size_t)number * cols + i] = expf(row[i] - most) * scale;
}
