// Colour to luminance. image is height x width x 3 bytes; a thread per pixel, x over the rows as in our CPU loops.
typedef unsigned char byte;

// /// kernelmate
// sizes = [{ height = 360, width = 480 }, { height = 41, width = 135 }, { height = 1, width = 1 }]
// grid = ["cdiv(height, 16)", "cdiv(width, 16)"]
// block = [16, 16]
// reference = "reference.py:rgb_to_gray"
// tolerance = { rtol = 0.0, atol = 1.0 }
// [args]
// image = "in uint8[height, width, 3]"
// gray = "out uint8[height, width]"
// height = "int32"
// width = "int32"
// ///
__global__ void rgb_to_gray(const byte* image, byte* gray, const int height, const int width) {
  const int i = threadIdx.x + blockDim.x * blockIdx.x;
  const int j = threadIdx.y + blockDim.y * blockIdx.y;
  if (i >= height) return;
  if (j >= width) return;
  const byte r = image[(i * width + j) * 3 + 0];
  const byte g = image[(i * width + j) * 3 + 1];
  const byte b = image[(i * width + j) * 3 + 2];
  gray[i * width + j] = (byte)(0.299 * r + 0.587 * g + 0.114 * b);
}
