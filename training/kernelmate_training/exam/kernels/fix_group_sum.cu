// Sums groups of 64 neighbouring values by warps: a block has two warps and one group.

// /// kernelmate
// sizes = [{ groups = 200 }, { groups = 13 }, { groups = 1 }]
// grid = "groups"
// block = 64
// shared = "block // 64 * 4"
// reference = "reference.py:group_sum"
// [args]
// v = "in float32[groups * 64] ~ normal"
// sum = "out float32[groups]"
// ///
__global__ void group_sum(const float* v, float* sum) {
  extern __shared__ float of_warp[];
  float x = v[blockIdx.x * 64 + threadIdx.x];
  for (int d = 16; d; d /= 2) x += __shfl_down_sync(~0u, x, d);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0) sum[blockIdx.x] = of_warp[0] + of_warp[1];
}
