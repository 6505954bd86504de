// A bin number that is too large by one makes an atomic addition behind the last bin.
// expect: out-of-bounds-write

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// keys = "in int32[n] ~ integers(0, 16)"
// bins = "inout int32[16] ~ zeros"
// n = "int32"
// ///
__global__ void atomic_past_end(const int* keys, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[keys[i] + 1], 1);
}
