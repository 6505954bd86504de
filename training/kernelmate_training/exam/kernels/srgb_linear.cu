// 8 bit sRGB to linear light.
__device__ float decode(unsigned char code) {
  double c = code / 255.0;
  return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

// /// kernelmate
// sizes = [{ pixels = 8192 }, { pixels = 333 }, { pixels = 1 }]
// grid = "cdiv(pixels * 3, block)"
// block = 256
// reference = "reference.py:srgb_linear"
// tolerance = { rtol = 1e-4, atol = 1e-6 }
// [args]
// rgb = "in uint8[pixels, 3] ~ integers(0, 256)"
// light = "out float32[pixels, 3]"
// pixels = "int32"
// ///
__global__ void linearize(const unsigned char* rgb, float* light, int pixels) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v < pixels * 3) light[v] = decode(rgb[v]);
}
