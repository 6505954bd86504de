// clamps half precision activations to [-limit, limit]

// /// kernelmate
// sizes = [{ n = 8192 }, { n = 123 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:half_clamp"
// [args]
// a = "inout float16[n] ~ normal"
// n = "int32"
// limit = "float32 = 0.75"
// ///
__global__ void clamp_half(__half* a, int n, float limit) {
  int k = threadIdx.x + blockIdx.x * blockDim.x;
  if (k >= n) return;
  float v = __half2float(a[k]);
  v = fminf(limit, fmaxf(-limit, v));
  a[k] = __float2half(v);
}
