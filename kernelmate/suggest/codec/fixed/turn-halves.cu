// asked: shared_bytes
// asked: time
#include <cuda_fp16.h>
// /// kernelmate
// sizes = [{ h = 96, w = 160 }]
// grid = ["cdiv(w, 32)", "cdiv(h, 32)"]
// block = [32, 4]
// [args]
// x = "in float16[h, w]"
// y = "out float16[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void turn_halves(const __half* x, __half* y, int h, int w) {
  __shared__ float tile[32][32];
  int c = blockIdx.x * 32 + threadIdx.x;
  int r = blockIdx.y * 32 + threadIdx.y;
  for (int e = 0; e < 32; e += 4) {
    if (r + e < h && c < w) {
      tile[threadIdx.y + e][threadIdx.x] = __half2float(x[(r + e) * w + c]);
    }
  }
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x;
  r = blockIdx.x * 32 + threadIdx.y;
  for (int e = 0; e < 32; e += 4) {
    if (r + e < w && c < h) {
      y[(r + e) * h + c] = __float2half(tile[threadIdx.x][threadIdx.y + e]);
    }
  }
}
