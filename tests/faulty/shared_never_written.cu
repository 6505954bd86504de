// Only the first half of the shared array is filled, and all of it is read.
// expect: uninitialised-shared

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void shared_never_written(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < 64) row[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = row[127 - threadIdx.x];
}
