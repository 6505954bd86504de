// Histogram of bytes, one thread and one atomic addition in global memory per sample.

// /// kernelmate
// sizes = [{ n = 67108864 }, { n = 31561 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:histogram"
// [args]
// samples = "in uint8[n]"
// counts = "inout int32[256] ~ zeros"
// n = "int32"
// ///
__global__ void histogram(const unsigned char* samples, int* counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&counts[samples[i]], 1);
  }
}
