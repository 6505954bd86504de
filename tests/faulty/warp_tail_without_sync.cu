// The last levels of a reduction rely on the lanes of one warp to wait for each other.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 64
// [args]
// x = "in float32[n]"
// y = "out float32[cdiv(n, 64)]"
// n = "int32"
// ///
__device__ void tail(volatile float* sums, int lane) {
  sums[lane] += sums[lane + 32];
  sums[lane] += sums[lane + 16];
  sums[lane] += sums[lane + 8];
  sums[lane] += sums[lane + 4];
  sums[lane] += sums[lane + 2];
  sums[lane] += sums[lane + 1];
}

__global__ void warp_tail_without_sync(const float* x, float* y, int n) {
  __shared__ float sums[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (threadIdx.x < 32) tail(sums, threadIdx.x);
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0];
}
