// A shuffle in a branch reads lanes that have not entered the branch.
// expect: shuffle-mask

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void shuffle_from_absent_lane(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = x[i];
  if (threadIdx.x % 32 < 16) value += __shfl_sync(0x0000ffff, value, (threadIdx.x + 16) % 32);
  y[i] = value;
}
