// Images enlarged twice by bilinear interpolation, pixel centres at halves (align_corners = false).

// /// kernelmate
// sizes = [
//   { channels = 32, height = 512, width = 512 },
//   { channels = 3, height = 37, width = 53 },
//   { channels = 1, height = 1, width = 1 },
// ]
// grid = ["cdiv(2 * width, 16)", "cdiv(2 * height, 16)", "channels"]
// block = [16, 16]
// require = ["channels > 0", "height > 0", "width > 0"]
// reference = "reference.py:upsample_bilinear"
// [args]
// image = "in float32[channels, height, width]"
// out = "out float32[channels, 2 * height, 2 * width]"
// height = "int32"
// width = "int32"
// ///
__global__ void upsample_bilinear(const float* image, float* out, int height, int width) {
  int ox = blockIdx.x * blockDim.x + threadIdx.x;
  int oy = blockIdx.y * blockDim.y + threadIdx.y;
  int c = blockIdx.z;
  if (ox >= 2 * width || oy >= 2 * height) return;

  float sx = fmaxf((ox + 0.5f) * 0.5f - 0.5f, 0.0f);
  float sy = fmaxf((oy + 0.5f) * 0.5f - 0.5f, 0.0f);
  int x0 = (int)sx;
  int y0 = (int)sy;
  int x1 = min(x0 + 1, width - 1);
  int y1 = min(y0 + 1, height - 1);
  float fx = sx - x0;
  float fy = sy - y0;

  const float* plane = image + (size_t)c * height * width;
  float top = plane[y0 * width + x0] * (1.0f - fx) + plane[y0 * width + x1] * fx;
  float bottom = plane[y1 * width + x0] * (1.0f - fx) + plane[y1 * width + x1] * fx;
  out[((size_t)c * 2 * height + oy) * 2 * width + ox] = top * (1.0f - fy) + bottom * fy;
}
