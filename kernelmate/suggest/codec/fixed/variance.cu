// asked: accuracy
// /// kernelmate
// sizes = [{ rows = 64, cols = 300 }]
// grid = "cdiv(rows, 128)"
// block = 128
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void variance(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < cols; ++c) {
      sum += x[row * cols + c];
      squares += x[row * cols + c] * x[row * cols + c];
    }
    float mean = sum / cols;
    y[row] = __fdividef(squares, cols) - mean * mean;
  }
}
