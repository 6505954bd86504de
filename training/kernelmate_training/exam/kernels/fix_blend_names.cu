// Blends two frames by a mask of 8 bits.

// /// kernelmate
// sizes = [{ pixels = 12000 }, { pixels = 501 }, { pixels = 1 }]
// grid = "cdiv(pixels, 256)"
// block = 256
// reference = "reference.py:blend"
// [args]
// front = "in float32[pixels] ~ uniform(0, 1)"
// back = "in float32[pixels] ~ uniform(0, 1)"
// mask = "in uint8[pixels] ~ integers(0, 256)"
// frame = "out float32[pixels]"
// pixels = "int32"
// ///
__global__ void blend(const float* front, const float* back, const unsigned char* mask, float* frame, int pixels) {
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel < pixels) {
    const float opacity = mask[pixel] / 255.0f;
    frame[pixel] = opactiy * front[pixel] + (1.0f - opacity) * back[pixel];
  }
}
