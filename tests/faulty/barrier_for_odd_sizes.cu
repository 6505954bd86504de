// The last block has fewer elements than threads, and those without one go around the barrier.
// expect: divergent-barrier

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void barrier_for_odd_sizes(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0.0f;
  if (i < n) {
    row[threadIdx.x] = x[i];
    __syncthreads();
    v = row[threadIdx.x];
  }
  for (int k = 0; k < 2; ++k) {
    if (i < n) y[i] = v + k;
  }
}
