// y += a * x. "It is only a vector", so one block.
#include <cstdio>

// /// kernelmate
// sizes = [{ n = 65536 }, { n = 1021 }, { n = 1 }]
// grid = 1
// block = 256
// reference = "reference.py:single_block_axpy"
// [args]
// n = "int32"
// a = "float32 = 2.5"
// x = "in float32[n]"
// y = "inout float32[n]"
// ///
__global__ void axpy(int n, float a, const float* x, float* y) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    y[i] += a * x[i];
  }
}

int main() {
  const int n = 65536;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) { x[i] = i; y[i] = 1; }
  axpy<<<1, 256>>>(n, 2.5f, x, y);
  cudaDeviceSynchronize();
  printf("%f\n", y[n - 1]);
}
