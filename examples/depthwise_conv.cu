// Depthwise 3 x 3 convolution with zero padding, one filter per channel.

// /// kernelmate
// sizes = [
//   { channels = 16, height = 96, width = 96 },
//   { channels = 3, height = 37, width = 53 },
//   { channels = 1, height = 1, width = 1 },
// ]
// grid = ["cdiv(width, 32)", "cdiv(height, 8)", "channels"]
// block = [32, 8]
// reference = "reference.py:depthwise_conv"
// [args]
// x = "in float32[channels, height, width]"
// weight = "in float32[channels, 3, 3]"
// y = "out float32[channels, height, width]"
// height = "int32"
// width = "int32"
// ///
__global__ void depthwise_conv(const float* x, const float* weight, float* y, int height, int width) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (col >= width || row >= height) return;
  const float* plane = x + (size_t)blockIdx.z * height * width;
  const float* filter = weight + blockIdx.z * 9;

  float sum = 0.0f;
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) {
      const int r = row + dy, c = col + dx;
      if (r >= 0 && r < height && c >= 0 && c < width) sum += filter[(dy + 1) * 3 + dx + 1] * plane[r * width + c];
    }
  }
  y[((size_t)blockIdx.z * height + row) * width + col] = sum;
}
