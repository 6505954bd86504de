// Finite impulse response filter of many signals, one thread per output sample.

// /// kernelmate
// sizes = [
//   { signals = 64, length = 262144, taps = 32 },
//   { signals = 3, length = 1000, taps = 7 },
//   { signals = 1, length = 1, taps = 1 },
// ]
// grid = ["cdiv(length - taps + 1, block)", "signals"]
// block = 256
// require = ["taps > 0", "length >= taps"]
// reference = "reference.py:fir_filter"
// [args]
// x = "in float32[signals, length]"
// h = "in float32[taps]"
// y = "out float32[signals, length - taps + 1]"
// length = "int32"
// taps = "int32"
// ///
__global__ void fir_filter(const float* x, const float* h, float* y, int length, int taps) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int s = blockIdx.y;
  int count = length - taps + 1;
  if (i >= count) return;
  float acc = 0.0f;
  for (int t = 0; t < taps; t++) acc += x[(size_t)s * length + i + t] * h[t];
  y[(size_t)s * count + i] = acc;
}
