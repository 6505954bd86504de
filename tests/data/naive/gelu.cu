// GELU, tanh approximation. The literals came with the formula.
#define SQRT_2_OVER_PI 0.7978845608028654

// /// kernelmate
// sizes = [{ count = 262144 }, { count = 9973 }, { count = 1 }]
// grid = "cdiv(count, 256)"
// block = 256
// reference = "reference.py:gelu"
// tolerance = { rtol = 1e-4, atol = 1e-5 }
// [args]
// x = "in float32[count] ~ normal"
// y = "out float32[count]"
// count = "int32"
// ///
__global__ void gelu_forward(const float* x, float* y, int count) {
  const int stride = blockDim.x * gridDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float v = x[i];
    y[i] = 0.5 * v * (1.0 + tanh(SQRT_2_OVER_PI * (v + 0.044715 * powf(v, 3.0))));
  }
}
