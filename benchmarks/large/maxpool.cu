// 2 x 2 max-pooling with stride 2.

// /// kernelmate
// sizes = [
//   { channels = 48, height = 1024, width = 1024 },
//   { channels = 3, height = 38, width = 54 },
//   { channels = 1, height = 2, width = 2 },
// ]
// grid = ["cdiv(width // 2, 32)", "cdiv(height // 2, 8)", "channels"]
// block = [32, 8]
// require = ["height % 2 == 0", "width % 2 == 0"]
// reference = "reference.py:maxpool"
// [args]
// x = "in float32[channels, height, width]"
// y = "out float32[channels, height // 2, width // 2]"
// height = "int32"
// width = "int32"
// ///
__global__ void maxpool(const float* x, float* y, int height, int width) {
  int ox = blockIdx.x * blockDim.x + threadIdx.x;
  int oy = blockIdx.y * blockDim.y + threadIdx.y;
  int c = blockIdx.z;
  if (ox >= width / 2 || oy >= height / 2) return;
  const float* plane = x + (size_t)c * height * width;
  float best = plane[2 * oy * width + 2 * ox];
  for (int dy = 0; dy < 2; dy++) {
    for (int dx = 0; dx < 2; dx++) {
      float v = plane[(2 * oy + dy) * width + 2 * ox + dx];
      if (v > best) best = v;
    }
  }
  y[((size_t)c * (height / 2) + oy) * (width / 2) + ox] = best;
}
