// Attention of a single head, one block per query. All scores of a query wait in shared memory.
#include <cfloat>

#define WARPS 8

// /// kernelmate
// sizes = [{ queries = 33, keys = 13, dim = 257 }, { queries = 5, keys = 67, dim = 512 }]
// grid = ["queries", "cdiv(dim, 512)"]
// block = 256
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
__global__ void attention(const float* __restrict__ q, const float* __restrict__ k,
                          const float* __restrict__ v, float* __restrict__ out, int keys, int dim,
                          float scale) {
  constexpr int kQueries = 64, kKeys = 64;  // of a block, the keys at a time
  constexpr int kValues = 512;  // columns of the result of a block
  constexpr int kDepth = 16;  // elements of queries and keys at a time
  constexpr int kStep = 8;  // rows of values at a time
  constexpr int kRows = 4, kSide = 4;  // queries and keys of a thread
  constexpr int kAcross = kKeys / kSide;  // neighbouring lanes that share queries
  constexpr int kThreads = kQueries / kRows * kAcross;
  constexpr int kColumns = kValues / kAcross;  // columns of a thread
  // Four elements more in each row: packs stay aligned, and what is stored by column meets different banks.
  __shared__ float query_tile[kDepth][kQueries + 4];
  __shared__ float key_tile[kDepth][kKeys + 4];
  __shared__ float weights[kQueries][kKeys + 4];
  __shared__ float value_tile[kStep][kValues];
  const float infinity = __int_as_float(0x7f800000);
  const int queries_2 = gridDim.x;  // blocks behind the last tile have none
  if (blockIdx.x * kQueries >= queries_2) return;
  const int first = blockIdx.x * kQueries;
  const int row = threadIdx.x / kAcross * kRows;
  const int rank = threadIdx.x % kAcross;
  const int column_first = blockIdx.y * kValues;
  float total[kRows][kColumns] = {};
  float largest[kRows], sum[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    largest[i] = -infinity;
    sum[i] = 0.0f;
  }
  for (int key_first = 0; key_first < keys; key_first += kKeys) {
    float scores[kRows][kSide] = {};
    for (int c_first = 0; c_first < dim; c_first += kDepth) {
#pragma unroll
      for (int i = threadIdx.x / 8; i < kQueries; i += kThreads / 8) {
#pragma unroll
        for (int n = threadIdx.x % 8; n < kDepth; n += 8) {
          const int query = first + i, c = c_first + n;
          const bool inside = query < queries_2 && c < dim;
          query_tile[n][i] = inside ? q[static_cast<size_t>(query) * dim + c] : 0.0f;
        }
      }
#pragma unroll
      for (int i = threadIdx.x / 8; i < kKeys; i += kThreads / 8) {
#pragma unroll
        for (int n = threadIdx.x % 8; n < kDepth; n += 8) {
          const int key = key_first + i, c = c_first + n;
          const bool inside = key < keys && c < dim;
          key_tile[n][i] = inside ? k[static_cast<size_t>(key) * dim + c] : 0.0f;
        }
      }
      __syncthreads();
      float products[kRows][kSide] = {};  // added as a whole: less is rounded away
#pragma unroll 8
      for (int n = 0; n < kDepth; ++n) {
        float query_part[kRows], key_part[kSide];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          query_part[i] = query_tile[n][row + i];
        }
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
          key_part[j] = key_tile[n][rank * kSide + j];
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kSide; ++j) {
            products[i][j] += query_part[i] * key_part[j];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
          scores[i][j] += products[i][j];
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float bound = largest[i];
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const int key = key_first + rank * kSide + j;
        scores[i][j] = key < keys ? scores[i][j] * scale : -infinity;
        bound = fmaxf(bound, scores[i][j]);
      }
      for (int offset = kAcross / 2; offset > 0; offset /= 2) {
        bound = fmaxf(bound, __shfl_xor_sync(0xffffffffu, bound, offset));
      }
      // While all scores are -inf, nothing is subtracted: weights are zero, not NaN.
      const float shift = bound == -infinity ? 0.0f : bound;
      const float factor = expf(largest[i] - shift);
      largest[i] = bound;
      sum[i] *= factor;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        total[i][j] *= factor;
      }
#pragma unroll
      for (int j = 0; j < kSide; ++j) {
        const float weight = expf(scores[i][j] - shift);
        weights[row + i][rank * kSide + j] = weight;
        sum[i] += weight;
      }
    }
    for (int step = 0; step < kKeys; step += kStep) {
#pragma unroll 4
      for (int i = threadIdx.x; i < kStep * kValues; i += kThreads) {
        const int key = key_first + step + i / kValues, column = column_first + i % kValues;
        const bool inside = key < keys && column < dim;
        value_tile[i / kValues][i % kValues] = inside ? v[static_cast<size_t>(key) * dim + column] : 0.0f;
      }
      __syncthreads();
#pragma unroll 4
      for (int n = 0; n < kStep; ++n) {
        float weight_part[kRows], value_part[kColumns];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          weight_part[i] = weights[row + i][step + n];
        }
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          value_part[j] = value_tile[n][j / 4 * 4 * kAcross + rank * 4 + j % 4];
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            total[i][j] += weight_part[i] * value_part[j];
          }
        }
      }
      __syncthreads();
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    for (int offset = kAcross / 2; offset > 0; offset /= 2) {
      sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], offset);
    }
    const int query = first + row + i;
    const float inverse_sum = 1.0f / sum[i];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int column = column_first + j / 4 * 4 * kAcross + rank * 4 + j % 4;
      if (query < queries_2 && column < dim) {
        out[static_cast<size_t>(query) * dim + column] = total[i][j] * inverse_sum;
      }
    }
  }
}
