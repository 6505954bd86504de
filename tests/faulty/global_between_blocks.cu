// A block reads its neighbour block's results, as if a barrier of a block held back the others.
// expect: global-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// scratch = "inout float32[n] ~ zeros"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void global_between_blocks(const float* x, float* scratch, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = x[i];
  __syncthreads();
  y[i] = scratch[i] + scratch[i + 1 < n ? i + 1 : 0];
}
