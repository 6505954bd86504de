// SiLU times a second input, four elements in 16-byte packs per thread.

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 1024)"
// block = 256
// reference = "../naive/reference.py:silu_mul"
// [args]
// gate = "in float32[n]"
// up = "in float32[n]"
// out = "out float32[n]"
// n = "int64"
// ///
__global__ void silu_mul(const float* __restrict__ gate, const float* __restrict__ up, float* __restrict__ out,
                         long long n) {
  long long i = ((long long)blockIdx.x * 256 + threadIdx.x) * 4;
  if (((size_t)gate | (size_t)up | (size_t)out) % 16 == 0 && i + 4 <= n) {
    float4 g = __ldcs(reinterpret_cast<const float4*>(gate + i)), u = __ldcs(reinterpret_cast<const float4*>(up + i));
    g.x = g.x / (1.0f + __expf(-g.x)) * u.x;
    g.y = g.y / (1.0f + __expf(-g.y)) * u.y;
    g.z = g.z / (1.0f + __expf(-g.z)) * u.z;
    g.w = g.w / (1.0f + __expf(-g.w)) * u.w;
    __stcs(reinterpret_cast<float4*>(out + i), g);
  } else {
    for (long long end = min(i + 4, n); i < end; i++) out[i] = gate[i] / (1.0f + __expf(-gate[i])) * up[i];
  }
}
