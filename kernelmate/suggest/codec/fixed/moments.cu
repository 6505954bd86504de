// asked: global_bytes
// /// kernelmate
// sizes = [{ rows = 64, cols = 256 }]
// grid = "cdiv(cols, block)"
// block = 32
// require = ["rows > 0"]
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void moments(const float* x, float* y, int rows, int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < cols) {
    float mean = 0.0f;
    float squares = 0.0f;
    for (int r = 0; r < rows; ++r) {
      const float own = x[r * cols + c];
      mean += own;
    }
    mean /= rows;
    for (int r = 0; r < rows; ++r) {
      const float own = x[r * cols + c] - mean;
      squares += own * own;
    }
    squares /= rows;
    y[c] = squares;
  }
}
