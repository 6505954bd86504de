// One warp of four waits at a barrier, and the others go around it.
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
__global__ void barrier_one_warp_waits_at(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  if (threadIdx.x < 32) {
    row[threadIdx.x] += 1.0f;
    __syncthreads();
  }
  y[i] = row[threadIdx.x];
}
