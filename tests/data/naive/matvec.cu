// y = A x, row major. One thread per row.

// /// kernelmate
// sizes = [{ rows = 640, cols = 512 }, { rows = 101, cols = 203 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, block)"
// block = 256
// reference = "A @ x"
// [args]
// A = "in float32[rows, cols] ~ normal"
// x = "in float32[cols] ~ normal"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void matvec(float* A, float* x, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) {
    y[r] = 0.0f;
    for (int c = 0; c < cols; c++) {
      y[r] += A[r * cols + c] * x[c];
    }
  }
}
