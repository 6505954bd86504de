// Sum of each column, one thread per column.

// /// kernelmate
// sizes = [{ rows = 8192, cols = 4096 }, { rows = 37, cols = 100 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, block)"
// block = 128
// reference = "reference.py:column_sum"
// [args]
// x = "in float32[rows, cols]"
// sums = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void column_sum(const float* x, float* sums, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) sum += x[row * cols + col];
  sums[col] = sum;
}
