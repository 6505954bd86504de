// Softmax of each row, one block per row: maximum, sum of exponentials, then the quotients.
#include <cfloat>

#define THREADS 256

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 3, cols = 1 }]
// grid = "rows"
// block = 256
// require = ["cols > 0"]
// reference = "reference.py:softmax"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void softmax(const float* x, float* y, int cols) {
  __shared__ float buffer[THREADS];
  const float* row = x + (size_t)blockIdx.x * cols;
  float* out = y + (size_t)blockIdx.x * cols;
  int tid = threadIdx.x;

  float largest = -FLT_MAX;
  for (int i = tid; i < cols; i += THREADS) largest = fmaxf(largest, row[i]);
  buffer[tid] = largest;
  __syncthreads();
  for (int s = THREADS / 2; s > 0; s /= 2) {
    if (tid < s) buffer[tid] = fmaxf(buffer[tid], buffer[tid + s]);
    __syncthreads();
  }
  largest = buffer[0];
  __syncthreads();

  float sum = 0.0f;
  for (int i = tid; i < cols; i += THREADS) sum += expf(row[i] - largest);
  buffer[tid] = sum;
  __syncthreads();
  for (int s = THREADS / 2; s > 0; s /= 2) {
    if (tid < s) buffer[tid] += buffer[tid + s];
    __syncthreads();
  }
  sum = buffer[0];

  for (int i = tid; i < cols; i += THREADS) out[i] = expf(row[i] - largest) / sum;
}
