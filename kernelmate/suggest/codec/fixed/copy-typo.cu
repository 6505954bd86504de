// says: compile-error: line 14: expected a ";"
// /// kernelmate
// sizes = [{ n = 65536 }]
// grid = "cdiv(n, block)"
// block = 32
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void copy(const float* x, float* y, int n) {
  const int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i < n) {
    y[i] = x[i]
  }
}
