// Two complex products in 16-byte packs per thread.

// /// kernelmate
// sizes = [{ n = 8388608 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 512)"
// block = 256
// reference = "../naive/reference.py:complex_multiply"
// [args]
// a = "in float32[n, 2]"
// b = "in float32[n, 2]"
// out = "out float32[n, 2]"
// n = "int32"
// ///
__global__ void complex_multiply(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
                                 int n) {
  int i = (blockIdx.x * 256 + threadIdx.x) * 2;
  if (((size_t)a | (size_t)b | (size_t)out) % 16 == 0 && i + 2 <= n) {
    float4 p = *reinterpret_cast<const float4*>(a + 2LL * i), q = *reinterpret_cast<const float4*>(b + 2LL * i);
    *reinterpret_cast<float4*>(out + 2LL * i) = make_float4(p.x * q.x - p.y * q.y, p.x * q.y + p.y * q.x,
                                                            p.z * q.z - p.w * q.w, p.z * q.w + p.w * q.z);
  } else {
    for (int end = min(i + 2, n); i < end; i++) {
      float u = a[2LL * i], v = a[2LL * i + 1], s = b[2LL * i], w = b[2LL * i + 1];
      out[2LL * i] = u * s - v * w;
      out[2LL * i + 1] = u * w + v * s;
    }
  }
}
