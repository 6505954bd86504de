// says: global-race: line 13: thread 224 of block (0, 0, 0) writes byte 24 of counts, which thread 279 has read at line 13, and nothing orders the two; put __syncthreads() between (848 times in all)
// /// kernelmate
// sizes = [{ n = 3072 }]
// grid = "min(cdiv(n, 512), 264)"
// block = 512
// [args]
// a = "in uint8[n] ~ integers(0, 3)"
// b = "in uint8[n] ~ integers(0, 3)"
// counts = "inout int32[3, 3] ~ zeros"
// n = "int32"
// ///
__global__ void pairs(const unsigned char* a, const unsigned char* b, int* counts, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    counts[a[i] * 3 + b[i]] += 1;
  }
}
