// One thread or one block for each row, as first written.
#include <cfloat>

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// require = ["cols > 0"]
// reference = "reference.py:row_max"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_max(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float m = x[(size_t)r * cols];
  for (int c = 1; c < cols; c++)
    if (x[(size_t)r * cols + c] > m) m = x[(size_t)r * cols + c];
  out[r] = m;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// require = ["cols > 0"]
// reference = "reference.py:row_argmax"
// [args]
// x = "in float32[rows, cols]"
// out = "out int32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_argmax(const float* x, int* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  int best = 0;
  for (int c = 1; c < cols; c++)
    if (x[(size_t)r * cols + c] > x[(size_t)r * cols + best]) best = c;
  out[r] = best;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 1
// require = ["cols > 0"]
// reference = "reference.py:logsumexp"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows]"
// cols = "int32"
// ///
__global__ void logsumexp(const float* x, float* out, int cols) {
  const float* row = x + (size_t)blockIdx.x * cols;
  float m = -FLT_MAX, s = 0.0f;
  for (int c = 0; c < cols; c++) m = fmaxf(m, row[c]);
  for (int c = 0; c < cols; c++) s += expf(row[c] - m);
  out[blockIdx.x] = m + logf(s);
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// require = ["cols > 0"]
// reference = "reference.py:row_moments"
// [args]
// x = "in float32[rows, cols]"
// mean = "out float32[rows]"
// var = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_moments(const float* x, float* mean, float* var, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f, q = 0.0f;
  for (int c = 0; c < cols; c++) s += x[(size_t)r * cols + c];
  float m = s / cols;
  for (int c = 0; c < cols; c++) {
    float d = x[(size_t)r * cols + c] - m;
    q += d * d;
  }
  mean[r] = m;
  var[r] = q / cols;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 64)"
// block = 64
// require = ["cols > 0"]
// reference = "reference.py:log_softmax"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void log_softmax(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  x += (size_t)r * cols;
  out += (size_t)r * cols;
  float m = x[0];
  for (int c = 1; c < cols; c++) m = x[c] > m ? x[c] : m;
  float s = 0.0f;
  for (int c = 0; c < cols; c++) s += expf(x[c] - m);
  float l = logf(s);
  for (int c = 0; c < cols; c++) out[c] = x[c] - m - l;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 128
// require = ["cols > 0"]
// reference = "reference.py:masked_softmax"
// [args]
// x = "in float32[rows, cols]"
// mask = "in uint8[rows, cols] ~ integers(0, 2)"
// out = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void masked_softmax(const float* x, const unsigned char* mask, float* out, int cols) {
  __shared__ float part[128];
  size_t base = (size_t)blockIdx.x * cols;
  float m = -INFINITY;
  for (int c = threadIdx.x; c < cols; c += 128)
    if (mask[base + c]) m = fmaxf(m, x[base + c]);
  part[threadIdx.x] = m;
  __syncthreads();
  for (int s = 64; s > 0; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
    __syncthreads();
  }
  m = part[0];
  __syncthreads();
  float sum = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 128) sum += mask[base + c] ? expf(x[base + c] - m) : expf(-INFINITY - m);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int s = 64; s > 0; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  sum = part[0];
  for (int c = threadIdx.x; c < cols; c += 128)
    out[base + c] = (mask[base + c] ? expf(x[base + c] - m) : expf(-INFINITY - m)) / sum;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 64)"
// block = 64
// require = ["cols > 0"]
// reference = "reference.py:quantize_rows"
// [args]
// x = "in float32[rows, cols]"
// q = "out int8[rows, cols]"
// scale = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void quantize_rows(const float* x, signed char* q, float* scale, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float m = 0.0f;
  for (int c = 0; c < cols; c++) m = fmaxf(m, fabsf(x[(size_t)r * cols + c]));
  float s = fmaxf(m, 1e-8f) / 127.0f;
  for (int c = 0; c < cols; c++)
    q[(size_t)r * cols + c] = (signed char)fminf(fmaxf(rintf(x[(size_t)r * cols + c] / s), -127.0f), 127.0f);
  scale[r] = s;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 768 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// reference = "reference.py:cosine_rows"
// [args]
// a = "in float32[rows, cols]"
// b = "in float32[rows, cols]"
// out = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void cosine_rows(const float* a, const float* b, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float ab = 0.0f, aa = 0.0f, bb = 0.0f;
  for (int c = 0; c < cols; c++) {
    float u = a[(size_t)r * cols + c], v = b[(size_t)r * cols + c];
    ab += u * v;
    aa += u * u;
    bb += v * v;
  }
  out[r] = ab / sqrtf(aa * bb + 1e-12f);
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 768 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 1
// reference = "reference.py:kl_rows"
// [args]
// p = "in float32[rows, cols] ~ uniform(0.01, 1)"
// q = "in float32[rows, cols] ~ uniform(0.01, 1)"
// out = "out float32[rows]"
// cols = "int32"
// ///
__global__ void kl_rows(const float* p, const float* q, float* out, int cols) {
  float s = 0.0f;
  for (int c = 0; c < cols; c++) {
    float u = p[(size_t)blockIdx.x * cols + c], v = q[(size_t)blockIdx.x * cols + c];
    s += u * (logf(u) - logf(v));
  }
  out[blockIdx.x] = s;
}

// /// kernelmate
// sizes = [{ rows = 65536, cols = 256 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// reference = "reference.py:norm_rows"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void norm_rows(const float* x, float* out, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < cols; c++) s += x[(size_t)r * cols + c] * x[(size_t)r * cols + c];
  float n = sqrtf(s);
  if (n < 1e-12f) n = 1e-12f;
  for (int c = 0; c < cols; c++) out[(size_t)r * cols + c] = x[(size_t)r * cols + c] / n;
}

// /// kernelmate
// sizes = [{ rows = 8192, cols = 2048 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// require = ["cols > 0"]
// reference = "reference.py:residual_rmsnorm"
// [args]
// x = "in float32[rows, cols]"
// residual = "in float32[rows, cols]"
// weight = "in float32[cols]"
// total = "out float32[rows, cols]"
// out = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void residual_rmsnorm(const float* x, const float* residual, const float* weight, float* total, float* out,
                                 int cols) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  float s = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    size_t i = (size_t)blockIdx.x * cols + c;
    float v = x[i] + residual[i];
    total[i] = v;
    s += v * v;
  }
  atomicAdd(&sum, s);
  __syncthreads();
  float r = rsqrtf(sum / cols + 1e-5f);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    size_t i = (size_t)blockIdx.x * cols + c;
    out[i] = total[i] * r * weight[c];
  }
}

// /// kernelmate
// sizes = [{ rows = 8192, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 64)"
// block = 64
// require = ["cols > 0"]
// reference = "reference.py:layernorm_grad"
// [args]
// dy = "in float32[rows, cols]"
// x = "in float32[rows, cols]"
// weight = "in float32[cols]"
// dx = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void layernorm_grad(const float* dy, const float* x, const float* weight, float* dx, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  dy += (size_t)r * cols;
  x += (size_t)r * cols;
  dx += (size_t)r * cols;
  float mean = 0.0f, var = 0.0f, gm = 0.0f, gnm = 0.0f;
  for (int c = 0; c < cols; c++) mean += x[c];
  mean /= cols;
  for (int c = 0; c < cols; c++) var += (x[c] - mean) * (x[c] - mean);
  float rstd = rsqrtf(var / cols + 1e-5f);
  for (int c = 0; c < cols; c++) {
    float g = dy[c] * weight[c];
    gm += g;
    gnm += g * (x[c] - mean) * rstd;
  }
  gm /= cols;
  gnm /= cols;
  for (int c = 0; c < cols; c++) dx[c] = (dy[c] * weight[c] - gm - (x[c] - mean) * rstd * gnm) * rstd;
}

// /// kernelmate
// sizes = [{ images = 32, channels = 256, pixels = 3136 }, { images = 3, channels = 5, pixels = 61 }]
// grid = "images * channels"
// block = 1
// require = ["pixels > 0"]
// reference = "reference.py:instance_norm"
// [args]
// x = "in float32[images, channels, pixels]"
// out = "out float32[images, channels, pixels]"
// pixels = "int32"
// ///
__global__ void instance_norm(const float* x, float* out, int pixels) {
  x += (size_t)blockIdx.x * pixels;
  out += (size_t)blockIdx.x * pixels;
  float mean = 0.0f, var = 0.0f;
  for (int p = 0; p < pixels; p++) mean += x[p];
  mean /= pixels;
  for (int p = 0; p < pixels; p++) var += (x[p] - mean) * (x[p] - mean);
  float rstd = 1.0f / sqrtf(var / pixels + 1e-5f);
  for (int p = 0; p < pixels; p++) out[p] = (x[p] - mean) * rstd;
}

// /// kernelmate
// sizes = [{ batch = 32, groups = 32, channels = 256, pixels = 1024 }, { batch = 3, groups = 4, channels = 8, pixels = 61 }]
// grid = ["groups", "batch"]
// block = 128
// require = ["pixels > 0", "groups > 0", "channels % groups == 0", "channels > 0"]
// reference = "reference.py:groupnorm"
// [args]
// x = "in float32[batch, channels, pixels]"
// weight = "in float32[channels]"
// bias = "in float32[channels]"
// out = "out float32[batch, channels, pixels]"
// channels = "int32"
// pixels = "int32"
// groups = "int32"
// ///
__global__ void groupnorm(const float* x, const float* weight, const float* bias, float* out, int channels, int pixels,
                          int groups) {
  __shared__ float part[128];
  int per = channels / groups, count = per * pixels;
  size_t base = ((size_t)blockIdx.y * channels + blockIdx.x * per) * pixels;
  float s = 0.0f;
  for (int i = threadIdx.x; i < count; i += 128) s += x[base + i];
  part[threadIdx.x] = s;
  __syncthreads();
  float mean = 0.0f;
  for (int t = 0; t < 128; t++) mean += part[t];
  mean /= count;
  __syncthreads();
  s = 0.0f;
  for (int i = threadIdx.x; i < count; i += 128) s += (x[base + i] - mean) * (x[base + i] - mean);
  part[threadIdx.x] = s;
  __syncthreads();
  float var = 0.0f;
  for (int t = 0; t < 128; t++) var += part[t];
  float rstd = rsqrtf(var / count + 1e-5f);
  for (int i = threadIdx.x; i < count; i += 128) {
    int c = blockIdx.x * per + i / pixels;
    out[base + i] = (x[base + i] - mean) * rstd * weight[c] + bias[c];
  }
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// reference = "reference.py:row_parity"
// [args]
// x = "in uint32[rows, cols]"
// y = "out uint32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_parity(const unsigned int* x, unsigned int* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  unsigned int p = 0;
  for (int c = 0; c < cols; c++) p ^= x[(size_t)r * cols + c];
  y[r] = p;
}
