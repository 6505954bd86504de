// A warp fills, another one drains: barriers that two warps of three take part in.

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = 16
// block = 96
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__device__ void meet(int number) { asm volatile("bar.sync %0, 64;" ::"r"(number) : "memory"); }
__device__ void announce(int number) { asm volatile("bar.arrive %0, 64;" ::"r"(number) : "memory"); }

__global__ void named_barriers(const float* x, float* y, int n) {
  __shared__ float row[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    row[lane] = x[blockIdx.x * 64 + lane];
    announce(1);
    meet(2);
    row[lane] = x[blockIdx.x * 64 + 32 + lane];
    announce(1);
  } else if (threadIdx.x < 64) {
    meet(1);
    y[blockIdx.x * 64 + lane] = row[31 - lane];
    announce(2);
    meet(1);
    y[blockIdx.x * 64 + 32 + lane] = row[31 - lane];
  }
}
