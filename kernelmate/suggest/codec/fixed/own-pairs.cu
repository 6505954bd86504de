// asked: time
// /// kernelmate
// sizes = [{ n = 8192 }]
// grid = "cdiv(n, block)"
// block = 256
// [args]
// x = "in float32[n, 12]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void own_pairs(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float own[12];
#pragma unroll 1
  for (int j = 0; j < 12; ++j) own[j] = x[i * 12 + j];
  float sum = 0.0f;
#pragma unroll 1
  for (int j = 0; j < 12; ++j) {
#pragma unroll 1
    for (int k = j + 1; k < 12; ++k) {
      sum += own[j] * own[k];
    }
  }
  y[i] = sum;
}
