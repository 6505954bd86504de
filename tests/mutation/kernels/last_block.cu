// The last block to finish adds up what all blocks have stored: a fence before the ticket makes it visible.

// /// kernelmate
// sizes = [{ n = 5000 }]
// grid = 20
// block = 128
// [args]
// x = "in float32[n]"
// partial = "inout float32[20] ~ zeros"
// ticket = "inout uint32[1] ~ zeros"
// y = "out float32[1]"
// n = "int32"
// ///
__global__ void last_block(const float* x, float* partial, unsigned* ticket, float* y, int n) {
  __shared__ float sums[128];
  __shared__ bool last;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  sums[threadIdx.x] = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0.0f;
    for (int i = 0; i < gridDim.x; ++i) total += sums[i];
    y[0] = total;
  }
}
