// One warp produces, the other waits for its flag in shared memory: fences of block scope on both sides.

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = 16
// block = 64
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void two_warps(const float* x, float* y, int n) {
  __shared__ float row[64];
  __shared__ int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  const int start = blockIdx.x * 64, lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    row[lane] = x[start + lane];
    row[lane + 32] = x[start + lane + 32];
    __threadfence_block();
    __syncwarp();
    if (lane == 0) *(volatile int*)&ready = 1;
  } else {
    while (*(volatile int*)&ready == 0) {
    }
    __threadfence_block();
    y[start + lane] = row[63 - lane];
    y[start + lane + 32] = row[31 - lane];
  }
}
