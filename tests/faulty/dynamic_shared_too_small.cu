// The launch gives half of the dynamic shared memory that the kernel uses.
// expect: out-of-bounds-write

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// shared = "block * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
extern __shared__ float row[];

__global__ void dynamic_shared_too_small(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = row[blockDim.x - 1 - threadIdx.x];
}
