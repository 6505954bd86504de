// /// kernelmate
// sizes = [{ n = 512, d = 96 }, { n = 77, d = 31 }, { n = 1, d = 1 }]
// grid = "cdiv(n, 4)"
// block = 128
// require = ["d > 0"]
// reference = "reference.py:cosine_pairs"
// tolerance = { rtol = 1e-4, atol = 1e-4 }
// [args]
// u = "in float32[n, d] ~ normal"
// v = "in float32[n, d] ~ normal"
// s = "out float32[n]"
// n = "int32"
// d = "int32"
// ///
__global__ void cos_sim(const float* u, const float* v, float* s, int n, int d) {
  int p = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (p >= n) return;
  float uv = 0, uu = 0, vv = 0;
  for (int k = lane; k < d; k += 32) {
    float a = u[p * d + k], b = v[p * d + k];
    uv += a * b; uu += a * a; vv += b * b;
  }
  for (int o = 16; o; o >>= 1) {
    uv += __shfl_xor_sync(~0u, uv, o);
    uu += __shfl_xor_sync(~0u, uu, o);
    vv += __shfl_xor_sync(~0u, vv, o);
  }
  if (lane == 0) s[p] = uv / (sqrtf(uu) * sqrtf(vv) + 1e-8f);
}
