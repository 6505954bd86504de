// Softmax over the rows of a matrix, one block per row. Three passes over the row, each reduction as a tree in dynamic
// shared memory of one float per thread.
#include <cuda_runtime.h>

// /// kernelmate
// sizes = [{ rows = 256, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// shared = "block * 4"
// reference = "reference.py:softmax"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void softmax(const float* x, float* y, int cols) {
  extern __shared__ float scratch[];
  const int tid = threadIdx.x;
  const float* in = x + (size_t)blockIdx.x * cols;
  float* out = y + (size_t)blockIdx.x * cols;

  float largest = -INFINITY;
  for (int c = tid; c < cols; c += blockDim.x) largest = fmaxf(largest, in[c]);
  scratch[tid] = largest;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) scratch[tid] = fmaxf(scratch[tid], scratch[tid + half]);
    __syncthreads();
  }
  largest = scratch[0];
  __syncthreads();  // everybody has read scratch[0] before it is used again

  float total = 0.0f;
  for (int c = tid; c < cols; c += blockDim.x) total += expf(in[c] - largest);
  scratch[tid] = total;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (tid < half) scratch[tid] += scratch[tid + half];
    __syncthreads();
  }
  total = scratch[0];

  for (int c = tid; c < cols; c += blockDim.x) out[c] = expf(in[c] - largest) / total;
}

void launch_softmax(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  softmax<<<rows, 256, 256 * sizeof(float), stream>>>(x, y, cols);
}
