// A block per head. Half a warp per position with eight 16-byte loads in flight per lane; each half warp keeps its own
// maximum, sum and weighted values, which are joined at the end.
#include <cuda_fp16.h>

__device__ void unpack(uint4 v, float* f) {
  const __half* h = reinterpret_cast<const __half*>(&v);
#pragma unroll
  for (int e = 0; e < 8; e++) f[e] = __half2float(h[e]);
}

// Any dim: a warp per position for scores of 512 positions, then a thread per element of the values.
__device__ void any_dim(const __half* q, const __half* keys, const __half* values, __half* out, int count, size_t step,
                        int dim) {
  __shared__ float score[512];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int first = 0; first < dim; first += 512) {
    int d = first + threadIdx.x;
    float m = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int start = 0; start < count; start += 512) {
      int filled = min(512, count - start);
      __syncthreads();
      for (int j = warp; j < filled; j += 16) {
        const __half* key = keys + (start + j) * step;
        float s = 0.0f;
        for (int e = lane; e < dim; e += 32) s += __half2float(q[e]) * __half2float(key[e]);
        for (int o = 16; o > 0; o /= 2) s += __shfl_xor_sync(~0u, s, o);
        if (lane == 0) score[j] = s * rsqrtf((float)dim);
      }
      __syncthreads();
      float next = m;
      for (int j = 0; j < filled; j++) next = fmaxf(next, score[j]);
      float old = __expf(m - next);
      sum *= old;
      acc *= old;
      m = next;
      for (int j = 0; j < filled; j++) {
        float p = __expf(score[j] - m);
        sum += p;
        if (d < dim) acc += p * __half2float(values[(start + j) * step + d]);
      }
    }
    if (d < dim) out[d] = __float2half(acc / sum);
  }
}

// /// kernelmate
// sizes = [{ positions = 8192, heads = 128, dim = 128 }, { positions = 131, heads = 3, dim = 37 }, { positions = 1, heads = 1, dim = 1 }]
// grid = "heads"
// block = 512
// reference = "../naive/reference.py:decode_attention"
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
__global__ void __launch_bounds__(512)
decode_attention(const __half* __restrict__ q, const __half* __restrict__ keys, const __half* __restrict__ values,
                 const int* __restrict__ filled, __half* __restrict__ out, int positions, int heads, int dim) {
  __shared__ float largest[32], sums[32], parts[32][128];
  int count = min(filled[0], positions);
  size_t step = (size_t)heads * dim, base = (size_t)blockIdx.x * dim;
  q += base, keys += base, values += base, out += base;
  if (dim % 8 != 0 || dim > 128 || ((size_t)q | (size_t)keys | (size_t)values) % 16 != 0) {
    any_dim(q, keys, values, out, count, step, dim);
    return;
  }
  int own = threadIdx.x / 16, d = threadIdx.x % 16 * 8;
  uint4 zero = make_uint4(0, 0, 0, 0);
  float query[8], m = -INFINITY, sum = 0.0f, acc[8] = {};
  unpack(d < dim ? *reinterpret_cast<const uint4*>(q + d) : zero, query);
#pragma unroll
  for (int e = 0; e < 8; e++) query[e] *= rsqrtf((float)dim);
  for (int start = 0; start < count; start += 128) {
    uint4 key[4], value[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      int j = start + u * 32 + own;
      bool in = j < count && d < dim;
      key[u] = in ? __ldcs(reinterpret_cast<const uint4*>(keys + j * step + d)) : zero;
      value[u] = in ? __ldcs(reinterpret_cast<const uint4*>(values + j * step + d)) : zero;
    }
    float score[4], next = m;
#pragma unroll
    for (int u = 0; u < 4; u++) {
      float f[8], s = 0.0f;
      unpack(key[u], f);
#pragma unroll
      for (int e = 0; e < 8; e++) s += query[e] * f[e];
#pragma unroll
      for (int o = 8; o > 0; o /= 2) s += __shfl_xor_sync(~0u, s, o);
      score[u] = s;
      if (start + u * 32 + own < count) next = fmaxf(next, s);
    }
    float old = m == -INFINITY ? 0.0f : __expf(m - next);
    m = next;
    sum *= old;
#pragma unroll
    for (int e = 0; e < 8; e++) acc[e] *= old;
#pragma unroll
    for (int u = 0; u < 4; u++) {
      float f[8], p = start + u * 32 + own < count ? __expf(score[u] - m) : 0.0f;
      unpack(value[u], f);
      sum += p;
#pragma unroll
      for (int e = 0; e < 8; e++) acc[e] += p * f[e];
    }
  }
  if (d == 0) largest[own] = m, sums[own] = sum;
#pragma unroll
  for (int e = 0; e < 8; e++) parts[own][d + e] = acc[e];
  __syncthreads();
  if (threadIdx.x >= dim) return;
  float top = largest[0], total = 0.0f, result = 0.0f;
  for (int g = 1; g < 32; g++) top = fmaxf(top, largest[g]);
  for (int g = 0; g < 32; g++) {
    float scale = __expf(largest[g] - top);  // zero where no position was this half warp's
    total += sums[g] * scale;
    result += parts[g][threadIdx.x] * scale;
  }
  out[threadIdx.x] = __float2half(result / total);
}
