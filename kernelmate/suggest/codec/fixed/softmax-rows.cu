// asked: time
// /// kernelmate
// sizes = [{ rows = 64, cols = 300 }]
// grid = "cdiv(rows, 64)"
// block = 64
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float top = -1e30f;
  for (int c = 0; c < cols; c++) top = fmaxf(top, x[row * cols + c]);
  float sum = 0.0f;
  for (int c = 0; c < cols; c++) sum += expf(x[row * cols + c] - top);
  for (int c = 0; c < cols; c++) y[row * cols + c] = expf(x[row * cols + c] - top) / sum * 0.5;
}
