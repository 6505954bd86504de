// Threads read what others have written to shared memory, with no barrier between.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void shared_read_after_write(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = i < n ? x[i] : 0.0f;
  if (i < n) y[i] = row[blockDim.x - 1 - threadIdx.x];
}
