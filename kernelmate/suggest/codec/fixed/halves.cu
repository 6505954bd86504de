// asked: accuracy
#include <cuda_fp16.h>
// /// kernelmate
// sizes = [{ rows = 96, cols = 192 }]
// grid = "cdiv(rows, block)"
// block = 32
// [args]
// x = "in float16[rows, cols]"
// y = "out float16[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void halves(const __half* x, __half* y, int rows, int cols) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  __half sum = __float2half(0.0f);
  for (int c = 0; c < cols; c++) {
    sum = __hadd(sum, x[r * cols + c]);
  }
  y[r] = sum;
}
