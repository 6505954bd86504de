// A lane calls __syncwarp with a mask that does not name the lane.
// expect: shuffle-mask

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void syncwarp_without_itself(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  __syncwarp(0x0000ffff);
  y[i] = threadIdx.x % 32 < 16 ? row[threadIdx.x ^ 1] : 0.0f;
}
