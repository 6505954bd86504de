// Prefix sums along each row, one thread per row.

// /// kernelmate
// sizes = [{ rows = 8192, cols = 2048 }, { rows = 37, cols = 130 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, block)"
// block = 64
// reference = "reference.py:row_scan"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_scan(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int col = 0; col < cols; ++col) {
    sum += x[row * cols + col];
    y[row * cols + col] = sum;
  }
}
