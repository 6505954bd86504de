// says: compile-error: line 9: identifier "__half" is undefined
// /// kernelmate
// sizes = [{ n = 65536 }]
// grid = "cdiv(n, block)"
// block = 32
// [args]
// x = "in float16[n]"
// y = "out float16[n]"
// n = "int32"
// ///
__global__ void copy(const __half* x, __half* y, int n) {
  const int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i < n) {
    y[i] = x[i];
  }
}
