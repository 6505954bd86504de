// says: wrong-at-size: wrong values at n=1531: y[1280] is 1.5, want 10.7
// /// kernelmate
// sizes = [{ n = 16384, taps = 9 }]
// grid = "max(n // 256, 1)"
// block = 256
// [args]
// x = "in float32[n + taps]"
// w = "in float32[taps]"
// y = "out float32[n]"
// n = "int32"
// taps = "int32"
// ///
__global__ void correlate(const float* x, const float* w, float* y, int n, int taps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = 0.0f;
  for (int t = 0; t < taps; ++t) {
    y[i] += x[i + t] * w[t];
  }
}
