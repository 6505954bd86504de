// Token embedding plus learned position: one block per token copies a row of the table.

// /// kernelmate
// sizes = [
//   { tokens = 256, dim = 512, vocab = 1000 },
//   { tokens = 37, dim = 853, vocab = 11 },
//   { tokens = 1, dim = 1, vocab = 1 },
// ]
// grid = "tokens"
// block = 128
// require = ["vocab > 0"]
// reference = "reference.py:embedding"
// [args]
// ids = "in int32[tokens] ~ integers(0, vocab)"
// table = "in float32[vocab, dim]"
// position = "in float32[tokens, dim]"
// out = "out float32[tokens, dim]"
// dim = "int32"
// ///
__global__ void embedding(const int* ids, const float* table, const float* position, float* out, int dim) {
  const size_t token = blockIdx.x;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    out[token * dim + d] = table[(size_t)ids[token] * dim + d] + position[token * dim + d];
  }
}
