#include <cuda_fp16.h>
// Keys from [seq][head][dim] to [head][dim][seq], so that the next product reads them in rows.

// /// kernelmate
// sizes = [{ seq = 192, heads = 6, dim = 64 }, { seq = 45, heads = 3, dim = 20 }, { seq = 1, heads = 1, dim = 1 }]
// grid = ["cdiv(dim, 32)", "cdiv(seq, 8)", "heads"]
// block = [32, 8, 1]
// reference = "k.transpose(1, 2, 0)"
// [args]
// k = "in float16[seq, heads, dim] ~ normal"
// kt = "out float16[heads, dim, seq]"
// seq = "int32"
// heads = "int32"
// dim = "int32"
// ///
__global__ void permute_keys(const __half* __restrict__ k, __half* __restrict__ kt, int seq, int heads, int dim) {
  const int d = blockIdx.x * 32 + threadIdx.x;
  const int s = blockIdx.y * 8 + threadIdx.y;
  const int head = blockIdx.z;
  if (d < dim && s < seq) {
    kt[(head * dim + d) * seq + s] = k[(s * heads + head) * dim + d];
  }
}
