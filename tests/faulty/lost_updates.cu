// Counts are increased by ordinary additions: threads with the same key overwrite each other.
// expect: global-race

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// keys = "in int32[n] ~ integers(0, 16)"
// bins = "inout int32[16] ~ zeros"
// n = "int32"
// ///
__global__ void lost_updates(const int* keys, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) bins[keys[i]] += 1;
}
