// Calibration curve of a sensor: a polynomial whose coefficients come from the laboratory, lowest power first.

// /// kernelmate
// sizes = [{ n = 8192, degree = 9 }, { n = 719, degree = 4 }, { n = 1, degree = 0 }]
// grid = "cdiv(n, 256)"
// block = 256
// require = ["degree < 16"]
// reference = "reference.py:sensor_curve"
// tolerance = { rtol = 1e-4, atol = 1e-4 }
// [args]
// raw = "in float32[n] ~ uniform(0.1, 1)"
// coef = "in float32[degree + 1] ~ uniform(0, 1)"
// value = "out float32[n]"
// n = "int32"
// degree = "int32"
// ///
__global__ void apply_curve(const float *raw, const float *coef, float *value, const int n, const int degree) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    double y = 0;
    for (int k = 0; k <= degree; ++k)
      y += coef[k] * pow((double)raw[i], (double)k);
    value[i] = (float)y;
  }
}
