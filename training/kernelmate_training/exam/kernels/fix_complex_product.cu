// spectrum times filter, complex numbers as (re, im)

// /// kernelmate
// sizes = [{ bins = 5000 }, { bins = 129 }, { bins = 1 }]
// grid = "cdiv(bins, block)"
// block = 256
// reference = "reference.py:complex_product"
// [args]
// spectrum = "inout float32[bins, 2] ~ normal"
// taps = "in float32[bins, 2] ~ normal"
// bins = "int32"
// ///
__global__ void multiply_spectrum(float2* spectrum, const float2* taps, int bins) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b < bins) {
    float2 s = spectrum[b];
    float2 f = taps[b];
    spectrum[b].x = s.x * f.x + s.y * f.y;
    spectrum[b].y = s.x * f.y + s.y * f.x;
  }
}
