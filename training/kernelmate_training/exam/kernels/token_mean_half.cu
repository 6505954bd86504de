#include <cuda_fp16.h>

// Mean pooling over the tokens of a sentence, everything in half.

// /// kernelmate
// sizes = [{ sentences = 12, tokens = 96, hidden = 128 }, { sentences = 3, tokens = 17, hidden = 50 }, { sentences = 1, tokens = 1, hidden = 1 }]
// grid = ["cdiv(hidden, block)", "sentences"]
// block = 64
// require = ["tokens > 0", "tokens <= 128"]
// reference = "x.mean(axis=1)"
// tolerance = { rtol = 5e-2, atol = 5e-2 }
// [args]
// x = "in float16[sentences, tokens, hidden] ~ uniform(0.5, 2)"
// pooled = "out float16[sentences, hidden]"
// tokens = "int32"
// hidden = "int32"
// ///
__global__ void mean_over_tokens(const half* x, half* pooled, int tokens, int hidden) {
  int f = blockIdx.x * blockDim.x + threadIdx.x;
  if (f < hidden) {
    half total = __float2half(0.f);
    for (int t = 0; t < tokens; t++) total = __hadd(total, x[(blockIdx.y * tokens + t) * hidden + f]);
    pooled[blockIdx.y * hidden + f] = __hdiv(total, __int2half_rn(tokens));
  }
}
