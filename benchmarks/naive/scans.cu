// Running sums, one thread for each row or column, as first written.

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 64)"
// block = 64
// reference = "reference.py:exclusive_scan"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void exclusive_scan(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < cols; c++) {
    out[(size_t)r * cols + c] = s;
    s += x[(size_t)r * cols + c];
  }
}

// /// kernelmate
// sizes = [{ rows = 4096, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 64)"
// block = 64
// reference = "reference.py:column_cumsum"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void column_cumsum(const float* x, float* out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float s = 0.0f;
  for (int r = 0; r < rows; r++) {
    s += x[(size_t)r * cols + c];
    out[(size_t)r * cols + c] = s;
  }
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// reference = "reference.py:running_average"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void running_average(const float* x, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float state = 0.0f;
  for (int c = 0; c < cols; c++) {
    state = 0.9f * state + 0.1f * x[(size_t)r * cols + c];
    y[(size_t)r * cols + c] = state;
  }
}
