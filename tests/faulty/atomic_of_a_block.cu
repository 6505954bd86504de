// Blocks share a counter but increase it with atomics that only hold within a block.
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
__global__ void atomic_of_a_block(const int* keys, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd_block(&bins[keys[i]], 1);
}
