// Down the columns, and over everything, as first written.

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 256)"
// block = 256
// require = ["rows > 0"]
// reference = "reference.py:column_max"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void column_max(const float* x, float* out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float m = x[c];
  for (int r = 1; r < rows; r++) m = fmaxf(m, x[(size_t)r * cols + c]);
  out[c] = m;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 256)"
// block = 256
// require = ["rows > 0"]
// reference = "reference.py:column_moments"
// [args]
// x = "in float32[rows, cols]"
// mean = "out float32[cols]"
// var = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void column_moments(const float* x, float* mean, float* var, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float s = 0.0f;
  for (int r = 0; r < rows; r++) s += x[(size_t)r * cols + c];
  float m = s / rows, q = 0.0f;
  for (int r = 0; r < rows; r++) {
    float d = x[(size_t)r * cols + c] - m;
    q += d * d;
  }
  mean[c] = m;
  var[c] = q / rows;
}

// /// kernelmate
// sizes = [{ images = 32, channels = 256, pixels = 3136 }, { images = 3, channels = 5, pixels = 61 }]
// grid = "cdiv(images * channels * pixels, 256)"
// block = 256
// reference = "reference.py:batchnorm_inference"
// [args]
// x = "in float32[images, channels, pixels]"
// mean = "in float32[channels]"
// var = "in float32[channels] ~ uniform(0.1, 2)"
// weight = "in float32[channels]"
// bias = "in float32[channels]"
// out = "out float32[images, channels, pixels]"
// count = "int32 = images * channels * pixels"
// channels = "int32"
// pixels = "int32"
// ///
__global__ void batchnorm_inference(const float* x, const float* mean, const float* var, const float* weight,
                                    const float* bias, float* out, int count, int channels, int pixels) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int c = i / pixels % channels;
  float scale = weight[c] * rsqrtf(var[c] + 1e-5f);
  out[i] = x[i] * scale + (bias[c] - mean[c] * scale);
}

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "1"
// block = 256
// require = ["n > 0"]
// reference = "reference.py:total_max"
// [args]
// x = "in float32[n]"
// out = "out float32[1]"
// n = "int32"
// ///
__global__ void total_max(const float* x, float* out, int n) {
  __shared__ float part[256];
  float m = -INFINITY;
  for (int i = threadIdx.x; i < n; i += 256) m = fmaxf(m, x[i]);
  part[threadIdx.x] = m;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int t = 1; t < 256; t++) m = fmaxf(m, part[t]);
    out[0] = m;
  }
}

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "1"
// block = 1024
// require = ["n > 0"]
// reference = "reference.py:mse"
// [args]
// a = "in float32[n]"
// b = "in float32[n]"
// out = "out float32[1]"
// n = "int32"
// ///
__global__ void mse(const float* a, const float* b, float* out, int n) {
  __shared__ float part[1024];
  float s = 0.0f;
  for (int i = threadIdx.x; i < n; i += 1024) s += (a[i] - b[i]) * (a[i] - b[i]);
  part[threadIdx.x] = s;
  __syncthreads();
  for (int step = 512; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = part[0] / n;
}
