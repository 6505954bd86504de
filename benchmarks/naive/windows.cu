// Neighbourhoods, one thread for each result, as first written.

// /// kernelmate
// sizes = [{ height = 4096, width = 4096 }, { height = 37, width = 61 }, { height = 1, width = 1 }]
// grid = ["cdiv(width, 16)", "cdiv(height, 16)"]
// block = [16, 16]
// reference = "reference.py:box_blur"
// [args]
// x = "in float32[height, width]"
// out = "out float32[height, width]"
// height = "int32"
// width = "int32"
// ///
__global__ void box_blur(const float* x, float* out, int height, int width) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= height || j >= width) return;
  float s = 0.0f;
  for (int di = -1; di <= 1; di++)
    for (int dj = -1; dj <= 1; dj++)
      s += x[(size_t)min(max(i + di, 0), height - 1) * width + min(max(j + dj, 0), width - 1)];
  out[(size_t)i * width + j] = s / 9.0f;
}

// /// kernelmate
// sizes = [{ height = 4096, width = 4096 }, { height = 37, width = 61 }, { height = 2, width = 2 }]
// grid = ["cdiv(width, 16)", "cdiv(height, 16)"]
// block = [16, 16]
// require = ["height >= 2", "width >= 2"]
// reference = "reference.py:sobel"
// [args]
// x = "in float32[height, width]"
// out = "out float32[height, width]"
// height = "int32"
// width = "int32"
// ///
__global__ void sobel(const float* x, float* out, int height, int width) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= height || j >= width) return;
  if (i == 0 || j == 0 || i == height - 1 || j == width - 1) {
    out[i * width + j] = 0.0f;
    return;
  }
  const float* p = x + (size_t)i * width + j;
  float gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
  float gy = p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
  out[i * width + j] = sqrtf(gx * gx + gy * gy);
}

// /// kernelmate
// sizes = [{ depth = 256, height = 256, width = 256 }, { depth = 9, height = 13, width = 21 }, { depth = 2, height = 2, width = 2 }]
// grid = ["cdiv(width, 32)", "cdiv(height, 8)", "depth"]
// block = [32, 8]
// require = ["depth >= 2", "height >= 2", "width >= 2"]
// reference = "reference.py:heat3d"
// [args]
// u = "in float32[depth, height, width]"
// v = "out float32[depth, height, width]"
// depth = "int32"
// height = "int32"
// width = "int32"
// c = "float32 = 0.1"
// ///
__global__ void heat3d(const float* u, float* v, int depth, int height, int width, float c) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y * blockDim.y + threadIdx.y;
  int i = blockIdx.z;
  if (j >= height || k >= width) return;
  size_t plane = (size_t)height * width, at = i * plane + (size_t)j * width + k;
  float s = u[at];
  if (i > 0 && j > 0 && k > 0 && i < depth - 1 && j < height - 1 && k < width - 1)
    s += c * (u[at - plane] + u[at + plane] + u[at - width] + u[at + width] + u[at - 1] + u[at + 1] - 6 * u[at]);
  v[at] = s;
}

// /// kernelmate
// sizes = [{ channels = 4096, length = 4096 }, { channels = 37, length = 61 }, { channels = 1, length = 1 }]
// grid = "cdiv(channels * length, 256)"
// block = 256
// reference = "reference.py:causal_conv"
// [args]
// x = "in float32[channels, length]"
// taps = "in float32[channels, 4]"
// out = "out float32[channels, length]"
// channels = "int32"
// length = "int32"
// ///
__global__ void causal_conv(const float* x, const float* taps, float* out, int channels, int length) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= channels * length) return;
  int c = i / length, t = i % length;
  float s = 0.0f;
  for (int k = 0; k < 4; k++)
    if (t - 3 + k >= 0) s += taps[c * 4 + k] * x[i - 3 + k];
  out[i] = s;
}

// /// kernelmate
// sizes = [{ n = 64, height = 512, width = 512 }, { n = 3, height = 6, width = 10 }, { n = 1, height = 2, width = 2 }]
// grid = "cdiv(n * height * width / 4, 256)"
// block = 256
// require = ["height % 2 == 0", "width % 2 == 0", "height > 0", "width > 0"]
// reference = "reference.py:avgpool"
// [args]
// x = "in float32[n, height, width]"
// out = "out float32[n, height // 2, width // 2]"
// n = "int32"
// height = "int32"
// width = "int32"
// ///
__global__ void avgpool(const float* x, float* out, int n, int height, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int w = width / 2, h = height / 2;
  if (i >= n * h * w) return;
  const float* p = x + (size_t)(i / w) * 2 * width + i % w * 2;
  out[i] = (p[0] + p[1] + p[width] + p[width + 1]) / 4;
}

// /// kernelmate
// sizes = [{ n = 64, height = 256, width = 256 }, { n = 3, height = 5, width = 9 }, { n = 1, height = 1, width = 1 }]
// grid = "cdiv(n * height * width * 4, 256)"
// block = 256
// reference = "reference.py:upsample_nearest"
// [args]
// x = "in float32[n, height, width]"
// out = "out float32[n, 2 * height, 2 * width]"
// n = "int32"
// height = "int32"
// width = "int32"
// ///
__global__ void upsample_nearest(const float* x, float* out, int n, int height, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n * height * width * 4) return;
  int j = i % (2 * width), r = i / (2 * width) % (2 * height), b = i / (2 * width) / (2 * height);
  out[i] = x[((size_t)b * height + r / 2) * width + j / 2];
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 128)", "rows"]
// block = 128
// reference = "reference.py:moving_average"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void moving_average(const float* x, float* y, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const float* row = x + (size_t)blockIdx.y * cols;
  float s = 0.0f;
  for (int d = -8; d <= 8; d++)
    if (c + d >= 0 && c + d < cols) s += row[c + d];
  y[(size_t)blockIdx.y * cols + c] = s / 17.0f;
}
