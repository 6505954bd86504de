// /// kernelmate
// sizes = [{ n = 512, d = 96 }, { n = 77, d = 31 }, { n = 1, d = 1 }]
// grid = "cdiv(n, 128)"
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
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p < n) {
    float uv = 0, uu = 0, vv = 0;
    u += p * d; v += p * d;
    for (int k = 0; k < d; ++k) { uv += u[k] * v[k]; uu += u[k] * u[k]; vv += v[k] * v[k]; }
    s[p] = uv / (sqrt(uu) * sqrt(vv) + 1e-8);
  }
}
