// Symmetric int8 quantisation with one power of two per row (per-token activations).

// /// kernelmate
// sizes = [{ tokens = 384, width = 128 }, { tokens = 39, width = 65 }, { tokens = 1, width = 1 }]
// grid = "cdiv(tokens, 4)"
// block = 128
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
  int token = blockIdx.x * 4 + threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  if (token >= tokens) return;
  const float* a = &act[token * width];
  float amax = 1e-12f;
  for (int i = lane; i < width; i += 32) amax = fmaxf(amax, fabsf(a[i]));
  for (int d = 16; d; d >>= 1) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, d));
  float inv = ldexpf(1.0f, 6 - ilogbf(amax));
  for (int i = lane; i < width; i += 32) q[token * width + i] = (signed char)fminf(127.0f, rintf(a[i] * inv));
  if (lane == 0) inverse[token] = inv;
}
