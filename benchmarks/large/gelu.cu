// GELU by the tanh approximation, as in GPT-2.

#define GELU_SCALE 0.7978845608f

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 100003 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:gelu"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void gelu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    float cube = 0.044715f * v * v * v;
    y[i] = 0.5f * v * (1.0f + tanhf(GELU_SCALE * (v + cube)));
  }
}
