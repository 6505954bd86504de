// Decoding attention: one query per head against a cache of keys and values, with online softmax. Each warp of the block
// takes every warps-th position; the warps' partial results are joined through shared memory.
#include <cfloat>

constexpr int kLanes = 32;
constexpr int kPerLane = 4;
constexpr int kMaxDim = kLanes * kPerLane;
constexpr int kWarps = 4;

// /// kernelmate
// sizes = [
//   { heads = 16, length = 256, dim = 64 },
//   { heads = 3, length = 101, dim = 37 },
//   { heads = 1, length = 1, dim = 1 },
// ]
// grid = "heads"
// block = 128
// require = ["length > 0", "dim <= 128"]
// reference = "reference.py:attention_row"
// [args]
// q = "in float32[heads, dim] ~ normal"
// k = "in float32[heads, length, dim] ~ normal"
// v = "in float32[heads, length, dim] ~ normal"
// out = "out float32[heads, dim]"
// length = "int32"
// dim = "int32"
// scale = "float32 = 0.125"
// ///
__global__ void __launch_bounds__(kWarps * kLanes)
attention_row(const float* q, const float* k, const float* v, float* out, int length, int dim, float scale) {
  __shared__ float joined[kWarps][kMaxDim];
  __shared__ float maxima[kWarps];
  __shared__ float totals[kWarps];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, warps = blockDim.x / kLanes;
  const int head = blockIdx.x;

  float query[kPerLane], acc[kPerLane];
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int d = lane + j * kLanes;
    query[j] = d < dim ? q[head * dim + d] : 0.0f;
    acc[j] = 0.0f;
  }

  float largest = -FLT_MAX, total = 0.0f;
  for (int t = warp; t < length; t += warps) {
    const size_t base = ((size_t)head * length + t) * dim;
    float score = 0.0f;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int d = lane + j * kLanes;
      if (d < dim) score += query[j] * k[base + d];
    }
    for (int offset = kLanes / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
    score *= scale;

    const float now = fmaxf(largest, score);
    const float keep = expf(largest - now), weight = expf(score - now);
    total = total * keep + weight;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int d = lane + j * kLanes;
      acc[j] = acc[j] * keep + (d < dim ? weight * v[base + d] : 0.0f);
    }
    largest = now;
  }

#pragma unroll
  for (int j = 0; j < kPerLane; ++j) joined[warp][lane + j * kLanes] = acc[j];
  if (lane == 0) {
    maxima[warp] = largest;
    totals[warp] = total;
  }
  __syncthreads();

  float top = maxima[0];
  for (int w = 1; w < warps; ++w) top = fmaxf(top, maxima[w]);
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float sum = 0.0f, all = 0.0f;
    for (int w = 0; w < warps; ++w) {
      const float share = expf(maxima[w] - top);
      sum += share * joined[w][d];
      all += share * totals[w];
    }
    out[head * dim + d] = sum / all;
  }
}
