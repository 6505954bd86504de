// Attention of a single head, one block per query. All scores of a query wait in shared memory.
#include <cfloat>

#define WARPS 8

// /// kernelmate
// sizes = [{ queries = 8192, keys = 8192, dim = 512 }, { queries = 5, keys = 67, dim = 64 }, { queries = 1, keys = 1, dim = 1 }]
// weights = [1, 0, 0]
// grid = "queries"
// block = 256
// shared = "keys * 4"
// require = ["keys > 0", "keys <= 8192"]
// reference = "reference.py:attention"
// [args]
// q = "in float32[queries, dim]"
// k = "in float32[keys, dim]"
// v = "in float32[keys, dim]"
// out = "out float32[queries, dim]"
// keys = "int32"
// dim = "int32"
// scale = "float32 = 0.044194173"
// ///
__global__ void attention(const float* q, const float* k, const float* v, float* out, int keys, int dim, float scale) {
  extern __shared__ float scores[];
  __shared__ float partial[WARPS];
  const float* query = q + (size_t)blockIdx.x * dim;
  int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;

  // One warp per key: the lanes share the dot product.
  for (int j = warp; j < keys; j += WARPS) {
    float dot = 0.0f;
    for (int d = lane; d < dim; d += 32) dot += query[d] * k[(size_t)j * dim + d];
    for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_down_sync(0xffffffff, dot, offset);
    if (lane == 0) scores[j] = dot * scale;
  }
  __syncthreads();

  float largest = -FLT_MAX;
  for (int j = tid; j < keys; j += blockDim.x) largest = fmaxf(largest, scores[j]);
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, offset));
  if (lane == 0) partial[warp] = largest;
  __syncthreads();
  largest = partial[0];
  for (int w = 1; w < WARPS; w++) largest = fmaxf(largest, partial[w]);
  __syncthreads();

  float sum = 0.0f;
  for (int j = tid; j < keys; j += blockDim.x) {
    scores[j] = expf(scores[j] - largest);
    sum += scores[j];
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int w = 0; w < WARPS; w++) sum += partial[w];

  for (int d = tid; d < dim; d += blockDim.x) {
    float acc = 0.0f;
    for (int j = 0; j < keys; j++) acc += scores[j] * v[(size_t)j * dim + d];
    out[(size_t)blockIdx.x * dim + d] = acc / sum;
  }
}
