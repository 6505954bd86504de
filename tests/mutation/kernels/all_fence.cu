// Every thread stores and fences for itself; one of them then signals for the block.

// /// kernelmate
// sizes = [{ n = 2048 }]
// grid = 16
// block = 128
// [args]
// x = "in float32[n]"
// scratch = "inout float32[n] ~ zeros"
// ticket = "inout uint32[1] ~ zeros"
// y = "out float32[1]"
// n = "int32"
// ///
__global__ void all_fence(const float* x, float* scratch, unsigned* ticket, float* y, int n) {
  __shared__ bool last;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = 2.0f * x[i];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float total = 0.0f;
    for (int k = 0; k < n; ++k) total += scratch[k];
    y[0] = total;
  }
}
