// A double is stored at every fourth byte.
// expect: misaligned-access

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, 2 * block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void misaligned_store(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i + 3 < n) *reinterpret_cast<double*>(y + 2 * i + 1) = x[i];
}
