// Four tokens of a head per thread in 16-byte packs; only the index of the block is divided.

// /// kernelmate
// sizes = [{ batch = 8, tokens = 2048, heads = 16, dim = 64 }, { batch = 2, tokens = 7, heads = 3, dim = 5 }, { batch = 1, tokens = 1, heads = 1, dim = 1 }]
// grid = "batch * heads * cdiv(tokens, 64)"
// block = [16, 16]
// reference = "../naive/reference.py:heads_first"
// [args]
// x = "in float32[batch, tokens, heads, dim]"
// out = "out float32[batch, heads, tokens, dim]"
// batch = "int32"
// tokens = "int32"
// heads = "int32"
// dim = "int32"
// ///
__global__ void heads_first(const float* __restrict__ x, float* __restrict__ out, int batch, int tokens, int heads,
                            int dim) {
  int tiles = (tokens + 63) / 64, first = blockIdx.x % tiles * 64 + threadIdx.y;
  int h = blockIdx.x / tiles % heads, b = blockIdx.x / tiles / heads;
  size_t step = (size_t)heads * dim;
  x += (size_t)b * tokens * step + (size_t)h * dim;
  out += ((size_t)b * heads + h) * tokens * dim;
  if (dim % 4 == 0 && ((size_t)x | (size_t)out) % 16 == 0) {
    for (int d = threadIdx.x * 4; d < dim; d += 64) {
      float4 v[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int t = first + k * 16;
        if (t < tokens) v[k] = __ldcs(reinterpret_cast<const float4*>(x + t * step + d));
      }
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int t = first + k * 16;
        if (t < tokens) __stcs(reinterpret_cast<float4*>(out + (size_t)t * dim + d), v[k]);
      }
    }
  } else {
    for (int t = first; t < min(tokens, first - (int)threadIdx.y + 64); t += 16)
      for (int d = threadIdx.x; d < dim; d += 16) out[(size_t)t * dim + d] = x[t * step + d];
  }
}
