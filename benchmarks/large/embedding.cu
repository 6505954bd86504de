// Rows of an embedding table, gathered by token and scaled; one block per token.

// /// kernelmate
// sizes = [
//   { tokens = 65536, vocabulary = 50257, dim = 512 },
//   { tokens = 37, vocabulary = 100, dim = 53 },
//   { tokens = 1, vocabulary = 1, dim = 1 },
// ]
// grid = "tokens"
// block = 128
// require = ["vocabulary > 0"]
// reference = "reference.py:embedding"
// [args]
// ids = "in int32[tokens] ~ integers(0, vocabulary)"
// table = "in float32[vocabulary, dim]"
// out = "out float32[tokens, dim]"
// dim = "int32"
// ///
__global__ void embedding(const int* ids, const float* table, float* out, int dim) {
  int token = blockIdx.x;
  int id = ids[token];
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    out[(size_t)token * dim + d] = table[(size_t)id * dim + d] * sqrtf((float)dim);
  }
}
