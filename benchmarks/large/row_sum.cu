// Sum of each row, one thread per row.

// /// kernelmate
// sizes = [{ rows = 32768, cols = 1024 }, { rows = 100, cols = 37 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, block)"
// block = 128
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// sums = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_sum(const float* x, float* sums, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int col = 0; col < cols; ++col) sum += x[row * cols + col];
  sums[row] = sum;
}
