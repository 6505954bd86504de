// 3 x 3 convolution of a few channels, zeros around the image, one thread per output pixel and channel.

// /// kernelmate
// sizes = [
//   { cin = 8, cout = 16, height = 1024, width = 1024 },
//   { cin = 3, cout = 5, height = 19, width = 37 },
//   { cin = 1, cout = 1, height = 1, width = 1 },
// ]
// grid = ["cdiv(width, 32)", "cdiv(height, 8)", "cout"]
// block = [32, 8]
// reference = "reference.py:conv2d"
// [args]
// x = "in float32[cin, height, width]"
// w = "in float32[cout, cin, 3, 3]"
// b = "in float32[cout]"
// y = "out float32[cout, height, width]"
// cin = "int32"
// height = "int32"
// width = "int32"
// ///
__global__ void conv2d(const float* x, const float* w, const float* b, float* y, int cin, int height, int width) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int co = blockIdx.z;
  if (col >= width || row >= height) return;
  float acc = b[co];
  for (int ci = 0; ci < cin; ci++) {
    for (int dy = -1; dy <= 1; dy++) {
      for (int dx = -1; dx <= 1; dx++) {
        int iy = row + dy, ix = col + dx;
        if (iy >= 0 && iy < height && ix >= 0 && ix < width) {
          acc += x[(ci * height + iy) * width + ix] * w[((co * cin + ci) * 3 + dy + 1) * 3 + dx + 1];
        }
      }
    }
  }
  y[(co * height + row) * width + col] = acc;
}
