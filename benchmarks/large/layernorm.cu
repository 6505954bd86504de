// Layer normalisation, one block per row: mean, variance, then the scaled and shifted row.

#define BLOCK 256

__device__ float block_sum(float value, float* buffer) {
  int tid = threadIdx.x;
  buffer[tid] = value;
  __syncthreads();
  for (int s = BLOCK / 2; s > 0; s >>= 1) {
    if (tid < s) buffer[tid] += buffer[tid + s];
    __syncthreads();
  }
  float total = buffer[0];
  __syncthreads();
  return total;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 2048 }, { rows = 19, cols = 500 }, { rows = 2, cols = 1 }]
// grid = "rows"
// block = 256
// require = ["cols > 0"]
// reference = "reference.py:layernorm"
// [args]
// x = "in float32[rows, cols]"
// gamma = "in float32[cols]"
// beta = "in float32[cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// eps = "float32 = 1e-5"
// ///
__global__ void layernorm(const float* x, const float* gamma, const float* beta, float* y, int cols, float eps) {
  __shared__ float buffer[BLOCK];
  const float* row = x + (size_t)blockIdx.x * cols;

  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += BLOCK) sum += row[i];
  float mean = block_sum(sum, buffer) / cols;

  float squares = 0.0f;
  for (int i = threadIdx.x; i < cols; i += BLOCK) {
    float d = row[i] - mean;
    squares += d * d;
  }
  float variance = block_sum(squares, buffer) / cols;
  float scale = 1.0f / sqrtf(variance + eps);

  for (int i = threadIdx.x; i < cols; i += BLOCK) {
    y[(size_t)blockIdx.x * cols + i] = (row[i] - mean) * scale * gamma[i] + beta[i];
  }
}
