// variants of gather_element: BLOCK=128 | BLOCK=512
// variants of gather_block: BLOCK=32 | BLOCK=128 | BLOCK=512
// variants of gather_vector: BLOCK=32 | BLOCK=128
// variants of gather_thread: BLOCK=128
#ifndef BLOCK
#define BLOCK 128
#endif

// /// kernelmate
// sizes = [{ tokens = 4096, dim = 512, words = 16384, BLOCK = 128 }]
// grid = "cdiv(tokens * dim, BLOCK)"
// block = "BLOCK"
// reference = "table[ids]"
// [args]
// table = "in float32[words, dim]"
// ids = "in int32[tokens] ~ integers(0, words)"
// y = "out float32[tokens, dim]"
// tokens = "int32"
// dim = "int32"
// ///
__global__ void gather_element(const float* table, const int* ids, float* y, int tokens, int dim) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < tokens * dim) y[i] = table[(size_t)ids[i / dim] * dim + i % dim];
}

// /// kernelmate
// sizes = [{ tokens = 4096, dim = 512, words = 16384, BLOCK = 128 }]
// grid = "tokens"
// block = "BLOCK"
// reference = "table[ids]"
// [args]
// table = "in float32[words, dim]"
// ids = "in int32[tokens] ~ integers(0, words)"
// y = "out float32[tokens, dim]"
// dim = "int32"
// ///
__global__ void gather_block(const float* table, const int* ids, float* y, int dim) {
  const float* row = table + (size_t)ids[blockIdx.x] * dim;
  for (int i = threadIdx.x; i < dim; i += BLOCK) y[(size_t)blockIdx.x * dim + i] = row[i];
}

// /// kernelmate
// sizes = [{ tokens = 4096, dim = 512, words = 16384, BLOCK = 128 }]
// grid = "tokens"
// block = "BLOCK"
// require = ["dim % 4 == 0"]
// reference = "table[ids]"
// [args]
// table = "in float32[words, dim]"
// ids = "in int32[tokens] ~ integers(0, words)"
// y = "out float32[tokens, dim]"
// dim = "int32"
// ///
__global__ void gather_vector(const float* table, const int* ids, float* y, int dim) {
  const float4* row = reinterpret_cast<const float4*>(table + (size_t)ids[blockIdx.x] * dim);
  float4* out = reinterpret_cast<float4*>(y + (size_t)blockIdx.x * dim);
  for (int i = threadIdx.x; i < dim / 4; i += BLOCK) out[i] = row[i];
}

// One thread copies a whole row: neighbouring lanes are a row apart.
// /// kernelmate
// sizes = [{ tokens = 4096, dim = 512, words = 16384, BLOCK = 128 }]
// grid = "cdiv(tokens, BLOCK)"
// block = "BLOCK"
// reference = "table[ids]"
// [args]
// table = "in float32[words, dim]"
// ids = "in int32[tokens] ~ integers(0, words)"
// y = "out float32[tokens, dim]"
// tokens = "int32"
// dim = "int32"
// ///
__global__ void gather_thread(const float* table, const int* ids, float* y, int tokens, int dim) {
  const int token = blockIdx.x * BLOCK + threadIdx.x;
  if (token >= tokens) return;
  for (int i = 0; i < dim; ++i) y[(size_t)token * dim + i] = table[(size_t)ids[token] * dim + i];
}
