// Attention, one thread for each query or one block for each head, as first written.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ heads = 64, positions = 2048, dim = 64 }, { heads = 3, positions = 71, dim = 20 }, { heads = 1, positions = 1, dim = 1 }]
// grid = ["cdiv(positions, 128)", "heads"]
// block = 128
// require = ["dim <= 128"]
// reference = "reference.py:causal_attention"
// [args]
// q = "in float32[heads, positions, dim]"
// k = "in float32[heads, positions, dim]"
// v = "in float32[heads, positions, dim]"
// out = "out float32[heads, positions, dim]"
// positions = "int32"
// dim = "int32"
// ///
__global__ void causal_attention(const float* q, const float* k, const float* v, float* out, int positions, int dim) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= positions) return;
  size_t head = (size_t)blockIdx.y * positions * dim;
  float acc[128];
  for (int d = 0; d < dim; d++) acc[d] = 0.0f;
  float m = -INFINITY, sum = 0.0f;
  for (int j = 0; j <= i; j++) {
    float s = 0.0f;
    for (int d = 0; d < dim; d++) s += q[head + (size_t)i * dim + d] * k[head + (size_t)j * dim + d];
    s /= sqrtf((float)dim);
    float next = fmaxf(m, s);
    float old = expf(m - next), p = expf(s - next);
    sum = sum * old + p;
    for (int d = 0; d < dim; d++) acc[d] = acc[d] * old + p * v[head + (size_t)j * dim + d];
    m = next;
  }
  for (int d = 0; d < dim; d++) out[head + (size_t)i * dim + d] = acc[d] / sum;
}

// /// kernelmate
// sizes = [{ positions = 2048, heads = 16, channels = 1024 }, { positions = 71, heads = 3, channels = 39 }, { positions = 1, heads = 1, channels = 1 }]
// grid = ["cdiv(positions, 64)", "heads"]
// block = 64
// require = ["channels % heads == 0"]
// reference = "reference.py:packed_attention"
// [args]
// qkv = "in float32[positions, 3 * channels]"
// out = "out float32[positions, channels]"
// positions = "int32"
// heads = "int32"
// channels = "int32"
// ///
__global__ void packed_attention(const float* qkv, float* out, int positions, int heads, int channels) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int h = blockIdx.y;
  if (i >= positions) return;
  int dim = channels / heads;
  float slope = exp2f(-8.0f * (h + 1) / heads);
  const float* q = qkv + (size_t)i * 3 * channels + h * dim;
  float m = -INFINITY, sum = 0.0f;
  for (int pass = 0; pass < 2; pass++) {
    for (int j = 0; j <= i; j++) {
      const float* k = qkv + (size_t)j * 3 * channels + channels + h * dim;
      float s = 0.0f;
      for (int d = 0; d < dim; d++) s += q[d] * k[d];
      s = s / sqrtf((float)dim) + slope * (j - i);
      if (pass == 0) {
        m = fmaxf(m, s);
      } else {
        sum += expf(s - m);
      }
    }
  }
  for (int c = 0; c < dim; c++) out[(size_t)i * channels + h * dim + c] = 0.0f;
  for (int j = 0; j <= i; j++) {
    const float* k = qkv + (size_t)j * 3 * channels + channels + h * dim;
    float s = 0.0f;
    for (int d = 0; d < dim; d++) s += q[d] * k[d];
    float p = expf(s / sqrtf((float)dim) + slope * (j - i) - m) / sum;
    for (int c = 0; c < dim; c++) out[(size_t)i * channels + h * dim + c] += p * k[channels + c];
  }
}

// /// kernelmate
// sizes = [{ positions = 8192, heads = 128, dim = 128 }, { positions = 131, heads = 3, dim = 37 }, { positions = 1, heads = 1, dim = 1 }]
// grid = "heads"
// block = 128
// reference = "reference.py:decode_attention"
// [args]
// q = "in float16[heads, dim]"
// keys = "in float16[positions, heads, dim]"
// values = "in float16[positions, heads, dim]"
// filled = "in int32[1] ~ integers(1, positions + 1)"
// out = "out float16[heads, dim]"
// positions = "int32"
// heads = "int32"
// dim = "int32"
// ///
__global__ void decode_attention(const __half* q, const __half* keys, const __half* values, const int* filled,
                                 __half* out, int positions, int heads, int dim) {
  int h = blockIdx.x;
  int count = min(filled[0], positions);
  __shared__ float partial[128];
  float m = -INFINITY;
  for (int j = threadIdx.x; j < count; j += blockDim.x) {
    float s = 0.0f;
    for (int d = 0; d < dim; d++) {
      s += __half2float(q[h * dim + d]) * __half2float(keys[((size_t)j * heads + h) * dim + d]);
    }
    m = fmaxf(m, s / sqrtf((float)dim));
  }
  partial[threadIdx.x] = m;
  __syncthreads();
  for (int t = 0; t < blockDim.x; t++) m = fmaxf(m, partial[t]);

  for (int c = threadIdx.x; c < dim; c += blockDim.x) {
    float sum = 0.0f, acc = 0.0f;
    for (int j = 0; j < count; j++) {
      float s = 0.0f;
      for (int d = 0; d < dim; d++) {
        s += __half2float(q[h * dim + d]) * __half2float(keys[((size_t)j * heads + h) * dim + d]);
      }
      float p = expf(s / sqrtf((float)dim) - m);
      sum += p;
      acc += p * __half2float(values[((size_t)j * heads + h) * dim + c]);
    }
    out[h * dim + c] = __float2half(acc / sum);
  }
}
