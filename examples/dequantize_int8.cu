// Weights from int8 back to float: a scale and a zero point per output channel.
#include <cstdint>

// /// kernelmate
// sizes = [{ rows = 256, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, block)", "rows"]
// block = 256
// reference = "reference.py:dequantize_int8"
// [args]
// q = "in int8[rows, cols]"
// scale = "in float32[rows]"
// zero = "in int8[rows]"
// w = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void dequantize_int8(const int8_t* q, const float* scale, const int8_t* zero, float* w, int cols) {
  const int row = blockIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  const size_t i = (size_t)row * cols + col;
  w[i] = scale[row] * (float)(q[i] - zero[row]);
}
