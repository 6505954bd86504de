// Rows of a matrix times a vector and a number; the backward kernel adds to the vector's gradient atomically.

// /// kernelmate
// sizes = [{ rows = 64, cols = 96 }, { rows = 7, cols = 33 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 64
// reference = "x * weight * factor"
// [args]
// x = "in float32[rows, cols] ~ normal"
// weight = "in float32[cols] ~ normal"
// y = "out float32[rows, cols]"
// cols = "int32"
// factor = "float32 = 0.5"
// ///
__global__ void scaled(const float* x, const float* weight, float* y, int cols, float factor) {
  for (int c = threadIdx.x; c < cols; c += 64) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] * weight[c] * factor;
}

// /// kernelmate
// sizes = [{ rows = 64, cols = 96 }, { rows = 7, cols = 33 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 64
// reference = "gradients.py:scaled_backward"
// [args]
// x = "in float32[rows, cols] ~ normal"
// weight = "in float32[cols] ~ normal"
// dy = "in float32[rows, cols] ~ normal"
// dx = "out float32[rows, cols]"
// dweight = "inout float32[cols] ~ zeros"
// cols = "int32"
// factor = "float32 = 0.5"
// ///
__global__ void scaled_backward(const float* x, const float* weight, const float* dy, float* dx, float* dweight, int cols,
                                float factor) {
  for (int c = threadIdx.x; c < cols; c += 64) {
    const int i = blockIdx.x * cols + c;
    dx[i] = dy[i] * weight[c] * factor;
    atomicAdd(&dweight[c], dy[i] * x[i] * factor);
  }
}
