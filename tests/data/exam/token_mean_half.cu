#include <cuda_fp16.h>

// Mean pooling over the tokens of a sentence, everything in half.

// /// kernelmate
// sizes = [{ sentences = 12, tokens = 96, hidden = 128 }, { sentences = 3, tokens = 17, hidden = 50 }, { sentences = 1, tokens = 1, hidden = 1 }]
// grid = ["cdiv(hidden, 32)", "sentences"]
// block = [32, 8]
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
  __shared__ float part[8][32];
  int f = blockIdx.x * 32 + threadIdx.x;
  float total = 0.f;
  if (f < hidden)
    for (int t = threadIdx.y; t < tokens; t += 8) total += __half2float(x[(blockIdx.y * tokens + t) * hidden + f]);
  part[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0 && f < hidden) {
    for (int i = 1; i < 8; i++) total += part[i][threadIdx.x];
    pooled[blockIdx.y * hidden + f] = __float2half(total / tokens);
  }
}
