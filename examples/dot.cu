// Dot product: grid-stride partial sums, a tree in shared memory per block, one atomic addition per block.
#include <cstdio>
#include <cuda_runtime.h>

constexpr int kBlock = 512;

// /// kernelmate
// sizes = [{ n = 262144 }, { n = 31561 }, { n = 1 }]
// grid = "min(cdiv(n, block), 64)"
// block = 512
// reference = "reference.py:dot"
// [args]
// x = "in float32[n] ~ normal"
// y = "in float32[n] ~ normal"
// result = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void dot(const float* x, const float* y, float* result, int n) {
  __shared__ float partial[kBlock];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(result, partial[0]);
}

int main(int argc, char** argv) {
  const int n = 1 << 18;
  float *x, *y, *result;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  cudaMallocManaged(&result, sizeof(float));
  for (int i = 0; i < n; ++i) {
    x[i] = 1.0f;
    y[i] = 0.5f;
  }
  *result = 0.0f;
  dot<<<64, kBlock>>>(x, y, result, n);
  cudaDeviceSynchronize();
  printf("%f (expected %f)\n", *result, 0.5 * n);
  return *result == 0.5f * n ? 0 : 1;
}
