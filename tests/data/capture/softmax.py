"""Launches an instance of a template of a RawModule, with dynamic shared memory and one block for each row."""

import cupy as cp
import numpy as np

module = cp.RawModule(
    code=r"""
template <typename T>
__global__ void softmax(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, float scale) {
  extern __shared__ float partial[];
  const T* row = x + (size_t)blockIdx.x * cols;
  float most = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) most = fmaxf(most, scale * (float)row[c]);
  partial[threadIdx.x] = most;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
  }
  __syncthreads();
  most = partial[0];
  __syncthreads();
  float sum = 0;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(scale * (float)row[c] - most);
  partial[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += blockDim.x)
    y[(size_t)blockIdx.x * cols + c] = (T)(expf(scale * (float)row[c] - most) / partial[0]);
}
""",
    options=("-std=c++17",),
    name_expressions=["softmax<float>"],
)
softmax = module.get_function("softmax<float>")

for step in range(6):
    rows, cols = ((16, 300), (5, 64), (33, 129))[step % 3]
    x = cp.asarray(np.random.default_rng(step).normal(size=(rows, cols)), dtype=cp.float32)
    y = cp.empty_like(x)
    softmax((rows,), (128,), (x, y, rows, cols, np.float32(cols**-0.5)), shared_mem=128 * 4)
    assert np.allclose(y.sum(axis=1).get(), 1, atol=1e-5)
