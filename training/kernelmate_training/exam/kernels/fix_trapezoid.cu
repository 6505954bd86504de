// Area under each curve by the trapezoid rule; samples are `dx` apart.

// /// kernelmate
// sizes = [{ curves = 512, samples = 33 }, { curves = 77, samples = 12 }, { curves = 1, samples = 2 }]
// grid = "cdiv(curves, 64)"
// block = 64
// require = ["samples > 1"]
// reference = "reference.py:trapezoid"
// [args]
// curve = "in float32[curves, samples] ~ normal"
// area = "out float32[curves]"
// curves = "int32"
// samples = "int32"
// dx = "float32 = 0.25"
// ///
__global__ void trapezoid(const float* curve, float* area, int curves, int samples, float dx) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= curves) return;
  for (int s = 1; s < samples; ++s) {
    area[c] += 0.5f * dx * (curve[c * samples + s - 1] + curve[c * samples + s]);
  }
}
