// Softmax over the rows of a matrix in three kernels, as it is written first: the largest element of each row, the sum
// of exponentials, and the quotient. Two temporaries of one float per row pass between them, and x is read three times.
#include <cuda_runtime.h>

// /// kernelmate
// pipeline = "softmax_in_three"
// sizes = [{ rows = 256, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// reference = "reference.py:softmax"
// [args]
// x = "in float32[rows, cols]"
// largest = "scratch float32[rows]"
// total = "scratch float32[rows]"
// y = "out float32[rows, cols]"
// cols = "int32"
// [[stages]]
// kernel = "row_max"
// grid = "rows"
// block = 256
// reference = "np.max(x, axis=1)"
// [[stages]]
// kernel = "row_exp_sum"
// grid = "rows"
// block = 256
// reference = "np.sum(np.exp(x - largest[:, None]), axis=1)"
// [[stages]]
// kernel = "divide"
// grid = "cdiv(rows * cols, block)"
// block = 256
// args = { n = "rows * cols" }
// ///

template <class Combine>
__device__ float block_reduce(float value, Combine combine) {
  __shared__ float partial[32];
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_down_sync(0xffffffffu, value, offset));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = partial[lane < blockDim.x / 32 ? lane : 0];
    if (lane >= blockDim.x / 32) value = combine.none();
    for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_down_sync(0xffffffffu, value, offset));
  }
  return value;
}

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ static float none() { return -INFINITY; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
  __device__ static float none() { return 0.0f; }
};

__global__ void row_max(const float* x, float* largest, int cols) {
  const float* row = x + (size_t)blockIdx.x * cols;
  float value = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) value = fmaxf(value, row[c]);
  value = block_reduce(value, Max());
  if (threadIdx.x == 0) largest[blockIdx.x] = value;
}

__global__ void row_exp_sum(const float* x, const float* largest, float* total, int cols) {
  const float* row = x + (size_t)blockIdx.x * cols;
  float value = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) value += expf(row[c] - largest[blockIdx.x]);
  value = block_reduce(value, Sum());
  if (threadIdx.x == 0) total[blockIdx.x] = value;
}

__global__ void divide(const float* x, const float* largest, const float* total, float* y, int cols, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = expf(x[i] - largest[i / cols]) / total[i / cols];
}

void softmax(const float* x, float* y, float* largest, float* total, int rows, int cols, cudaStream_t stream) {
  row_max<<<rows, 256, 0, stream>>>(x, largest, cols);
  row_exp_sum<<<rows, 256, 0, stream>>>(x, largest, total, cols);
  divide<<<(rows * cols + 255) / 256, 256, 0, stream>>>(x, largest, total, y, cols, rows * cols);
}
