// y = a x + y, one thread per element.

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 100003 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "a * x + y"
// [args]
// n = "int32"
// a = "float32 = 2.5"
// x = "in float32[n]"
// y = "inout float32[n]"
// ///
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
