// A linear layer with GELU: a product that a library computes, then bias and activation in one pass over it.
// /// kernelmate
// pipeline = "linear_gelu"
// sizes = [{ rows = 48, cols = 96, k = 64 }, { rows = 7, cols = 33, k = 5 }]
// reference = "../reference.py:bias_gelu"
// [args]
// a = "in float32[rows, k]"
// b = "in float32[k, cols]"
// bias = "in float32[cols]"
// product = "scratch float32[rows, cols]"
// y = "out float32[rows, cols]"
// [[stages]]
// product = "a @ b"
// [[stages]]
// kernel = "bias_gelu"
// grid = "cdiv(rows * cols, block)"
// block = 256
// args = { x = "product", n = "rows * cols" }
// ///

__global__ void bias_gelu(const float* x, const float* bias, float* y, int cols, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i] + bias[i % cols];
  y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
}
