// Threads of a block exchange values through global memory without a barrier.
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
__global__ void global_within_block(const float* x, float* scratch, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = x[i];
  y[i] = scratch[i ^ 1];
}
