// Count how often each of NBINS values occurs; the data are ints that may be out of range.
#define NBINS 64
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)

// /// kernelmate
// sizes = [{ total = 100000 }, { total = 4099 }, { total = 1 }]
// grid = "cdiv(total, 256)"
// block = 256
// reference = "reference.py:letter_counts"
// [args]
// data = "in int32[total] ~ integers(-2, 66)"
// total = "int32"
// bins = "inout int32[64] ~ zeros"
// ///
__global__ void letterCounts(const int* data, int total, int* bins) {
  int idx = GLOBAL_ID;
  if (idx < total) {
    int v = data[idx];
    if (v >= 0 && v < NBINS)
      atomicAdd(&bins[v], 1);
  }
}
