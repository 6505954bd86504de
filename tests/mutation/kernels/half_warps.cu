// The two halves of each warp exchange among themselves, with masks that name one half.

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 64
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void half_warps(const float* x, float* y, int n) {
  __shared__ float row[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  row[threadIdx.x] = x[i];
  __syncwarp(mask);
  const float other = row[threadIdx.x ^ 15];
  __syncwarp(mask);
  row[threadIdx.x] = other;
  __syncthreads();
  y[i] = row[63 - threadIdx.x];
}
