// Symmetric int8 quantisation with one power of two per row (per-token activations).

// /// kernelmate
// sizes = [{ tokens = 384, width = 128 }, { tokens = 39, width = 65 }, { tokens = 1, width = 1 }]
// grid = "cdiv(tokens, block)"
// block = 64
// require = ["width > 0"]
// reference = "reference.py:quantize_rows"
// [args]
// act = "in float32[tokens, width] ~ normal"
// q = "out int8[tokens, width]"
// inverse = "out float32[tokens]"
// tokens = "int32"
// width = "int32"
// ///
__global__ void quantize_rows(const float* act, signed char* q, float* inverse, int tokens, int width) {
  int token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token < tokens) {
    const float* a = &act[token * width];
    float amax = 1e-12f;
    for (int i = 0; i < width; i++) amax = fmaxf(amax, fabsf(a[i]));
    float inv = ldexpf(1.0f, 6 - ilogbf(amax));
    for (int i = 0; i < width; i++) {
      q[token * width + i] = (signed char)fminf(127.0f, rintf(a[i] * inv));
    }
    inverse[token] = inv;
  }
}
