// asked: time
// /// kernelmate
// sizes = [{ rows = 128, cols = 512 }]
// grid = "cdiv(rows, 128)"
// block = 128
// [args]
// x = "in float32[rows, cols]"
// share = "in float32[rows]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void mix_rows(const float* x, const float* share, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) {
    for (int c = 0; c < cols; c += 1) {
      long long at = c + r * cols;
      y[at] = sqrtf(fabsf(share[r])) * x[at] + sqrtf(fmaxf(1.0f - share[r], 0.0f));
    }
  }
}
