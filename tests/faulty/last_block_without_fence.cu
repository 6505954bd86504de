// The last block adds up what the others have stored, and nothing makes their stores visible before their tickets.
// expect: global-race

// /// kernelmate
// sizes = [{ n = 4096 }]
// grid = 16
// block = 128
// [args]
// x = "in float32[n]"
// partial = "inout float32[16] ~ zeros"
// ticket = "inout uint32[1] ~ zeros"
// y = "out float32[1]"
// n = "int32"
// ///
__global__ void last_block_without_fence(const float* x, float* partial, unsigned* ticket, float* y, int n) {
  __shared__ float sums[128];
  __shared__ bool last;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 128; ++i) sum += sums[i];
    partial[blockIdx.x] = sum;
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  float total = 0.0f;
  for (int i = 0; i < gridDim.x; ++i) total += partial[i];
  y[0] = total;
}
