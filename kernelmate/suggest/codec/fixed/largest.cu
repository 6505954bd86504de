// says: wrong-at-size: wrong values at rows=45, cols=77: y[0] is 2.17, want 2.01
// /// kernelmate
// sizes = [{ rows = 96, cols = 192 }]
// grid = "cdiv(rows, 128)"
// block = 128
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void largest(const float* x, float* y, int rows, int cols) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) {
    y[r] = -1e30f;
    for (int c = 0; c < cols; ++c) {
      y[r] = fmaxf(y[r], x[c * rows + r]);
    }
  }
}
