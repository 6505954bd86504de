// A pointer that is set for no thread is used by all.
// expect: illegal-address

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void null_pointer(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* source = n < 0 ? x : nullptr;
  if (i < n) y[i] = source[i];
}
