// Threads take a loop with a barrier in it a different number of times.
// expect: divergent-barrier

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = 8
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void barrier_in_a_loop(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = 0.0f;
  for (int turn = 0; turn <= threadIdx.x % 4; ++turn) {
    row[threadIdx.x] += x[i];
    __syncthreads();
  }
  __syncthreads();
  y[i] = row[threadIdx.x];
}
