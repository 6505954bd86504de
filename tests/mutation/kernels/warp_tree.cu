// Each warp sums its part in shared memory, its lanes kept together by __syncwarp.

// /// kernelmate
// sizes = [{ n = 1000 }, { n = 992 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[cdiv(n, 32)]"
// n = "int32"
// ///
__global__ void warp_tree(const float* x, float* y, int n) {
  __shared__ float sums[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  sums[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncwarp();
  for (int half = 16; half > 0; half /= 2) {
    if (lane < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncwarp();
  }
  if (lane == 0 && i < n) y[i / 32] = sums[threadIdx.x];
}
