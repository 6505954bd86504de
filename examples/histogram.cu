// Histogram of bytes: every sample is an atomic addition in global memory.

// /// kernelmate
// sizes = [{ n = 131072 }, { n = 31561 }, { n = 1 }]
// grid = "min(cdiv(n, block), 128)"
// block = 256
// reference = "reference.py:histogram"
// [args]
// samples = "in uint8[n]"
// counts = "inout uint32[256] ~ zeros"
// n = "int32"
// ///
__global__ void histogram(const unsigned char* samples, unsigned int* counts, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&counts[samples[i]], 1u);
  }
}
