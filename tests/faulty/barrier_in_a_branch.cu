// Half of the block waits at a barrier that the other half never reaches.
// expect: divergent-barrier

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void barrier_in_a_branch(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  if (threadIdx.x < 48) {
    __syncthreads();
    y[i] = row[47 - threadIdx.x];
  } else {
    y[i] = 0.0f;
    __syncthreads();
  }
}
