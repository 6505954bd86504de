// FIR filter in double precision, "valid" part only.

// /// kernelmate
// sizes = [{ len = 40960, taps = 48 }, { len = 1531, taps = 7 }, { len = 1, taps = 1 }]
// grid = "cdiv(len, 192)"
// block = 192
// reference = "reference.py:fir_filter"
// [args]
// signal = "in float64[len + taps]"
// coeff = "in float64[taps]"
// result = "out float64[len]"
// len = "int32"
// taps = "int32"
// ///
__global__ void fir(double const* signal, double const* coeff, double* result, int len, int taps) {
  int position = blockIdx.x * blockDim.x + threadIdx.x;
  while (position < len) {
    result[position] = 0;
    int t = 0;
    while (t < taps) {
      result[position] = result[position] + signal[position + t] * coeff[t];
      t = t + 1;
    }
    position += gridDim.x * blockDim.x;
  }
}
