// Elements in another order, one thread for each, as first written.

// /// kernelmate
// sizes = [{ images = 32, channels = 64, pixels = 12544 }, { images = 3, channels = 5, pixels = 61 }, { images = 1, channels = 1, pixels = 1 }]
// grid = "cdiv(images * channels * pixels, 256)"
// block = 256
// reference = "reference.py:nchw_to_nhwc"
// [args]
// x = "in float32[images, channels, pixels]"
// out = "out float32[images, pixels, channels]"
// images = "int32"
// channels = "int32"
// pixels = "int32"
// ///
__global__ void nchw_to_nhwc(const float* x, float* out, int images, int channels, int pixels) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= images * channels * pixels) return;
  int p = i % pixels, c = i / pixels % channels, n = i / pixels / channels;
  out[(n * pixels + p) * channels + c] = x[i];
}

// /// kernelmate
// sizes = [{ batch = 8, tokens = 2048, heads = 16, dim = 64 }, { batch = 2, tokens = 7, heads = 3, dim = 5 }, { batch = 1, tokens = 1, heads = 1, dim = 1 }]
// grid = "cdiv(batch * tokens * heads * dim, 256)"
// block = 256
// reference = "reference.py:heads_first"
// [args]
// x = "in float32[batch, tokens, heads, dim]"
// out = "out float32[batch, heads, tokens, dim]"
// batch = "int32"
// tokens = "int32"
// heads = "int32"
// dim = "int32"
// ///
__global__ void heads_first(const float* x, float* out, int batch, int tokens, int heads, int dim) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch * tokens * heads * dim) return;
  int d = i % dim, h = i / dim % heads, t = i / dim / heads % tokens, b = i / dim / heads / tokens;
  out[((b * heads + h) * tokens + t) * dim + d] = x[i];
}

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:interleave"
// [args]
// a = "in float32[n]"
// b = "in float32[n]"
// out = "out float32[2 * n]"
// n = "int32"
// ///
__global__ void interleave(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[2 * i] = a[i];
    out[2 * i + 1] = b[i];
  }
}
