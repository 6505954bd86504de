// All threads of a block write their own value to one place: which of them stays is left to chance.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void shared_write_after_write(const float* x, float* y, int n) {
  __shared__ float chosen;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0.0f) chosen = x[i];
  if (threadIdx.x == 0 && x[i] <= 0.0f) chosen = 1.0f;
  __syncthreads();
  if (i < n) y[i] = x[i] / chosen;
}
