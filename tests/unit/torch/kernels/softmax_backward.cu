// /// kernelmate
// sizes = [{ rows = 64, cols = 256 }, { rows = 37, cols = 53 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 32
// reference = "gradients.py:softmax_backward"
// [args]
// y = "in float32[rows, cols] ~ uniform(0, 1)"
// grad_y = "in float32[rows, cols] ~ normal"
// grad_x = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void softmax_backward(const float* y, const float* grad_y, float* grad_x, int cols) {
  const size_t row = (size_t)blockIdx.x * cols;
  float dot = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 32) dot += y[row + c] * grad_y[row + c];
  for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, offset);
  for (int c = threadIdx.x; c < cols; c += 32) grad_x[row + c] = y[row + c] * (grad_y[row + c] - dot);
}
