// Products of matrices and vectors, one thread for each result, as first written.

// /// kernelmate
// sizes = [{ rows = 8192, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 128)"
// block = 128
// reference = "reference.py:matvec"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void matvec(const float* a, const float* x, float* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int c = 0; c < cols; c++) s += a[(size_t)r * cols + c] * x[c];
  y[r] = s;
}

// /// kernelmate
// sizes = [{ rows = 8192, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 128)"
// block = 128
// reference = "reference.py:vecmat"
// [args]
// x = "in float32[rows]"
// a = "in float32[rows, cols]"
// y = "out float32[cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void vecmat(const float* x, const float* a, float* y, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  float s = 0.0f;
  for (int r = 0; r < rows; r++) s += x[r] * a[(size_t)r * cols + c];
  y[c] = s;
}

// /// kernelmate
// sizes = [{ batch = 2048, outs = 2048, ins = 2048 }, { batch = 37, outs = 61, ins = 19 }, { batch = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(batch, 16)"]
// block = [16, 16]
// reference = "reference.py:linear_relu"
// [args]
// x = "in float32[batch, ins]"
// weight = "in float32[outs, ins]"
// bias = "in float32[outs]"
// y = "out float32[batch, outs]"
// batch = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void linear_relu(const float* x, const float* weight, const float* bias, float* y, int batch, int outs,
                            int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int b = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || b >= batch) return;
  float s = bias[o];
  for (int k = 0; k < ins; k++) s += x[b * ins + k] * weight[o * ins + k];
  y[b * outs + o] = fmaxf(s, 0.0f);
}

// /// kernelmate
// sizes = [{ batch = 512, rows = 128, cols = 128, depth = 128 }, { batch = 3, rows = 17, cols = 9, depth = 21 }, { batch = 1, rows = 1, cols = 1, depth = 1 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)", "batch"]
// block = [16, 16]
// reference = "reference.py:batched_matmul"
// [args]
// a = "in float32[batch, rows, depth]"
// b = "in float32[batch, depth, cols]"
// c = "out float32[batch, rows, cols]"
// rows = "int32"
// cols = "int32"
// depth = "int32"
// ///
__global__ void batched_matmul(const float* a, const float* b, float* c, int rows, int cols, int depth) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= rows || col >= cols) return;
  a += (size_t)blockIdx.z * rows * depth;
  b += (size_t)blockIdx.z * depth * cols;
  c += (size_t)blockIdx.z * rows * cols;
  float s = 0.0f;
  for (int k = 0; k < depth; k++) s += a[row * depth + k] * b[k * cols + col];
  c[row * cols + col] = s;
}

// /// kernelmate
// sizes = [{ n = 4096, m = 4096, dim = 64 }, { n = 37, m = 61, dim = 5 }, { n = 1, m = 1, dim = 1 }]
// grid = ["cdiv(m, 16)", "cdiv(n, 16)"]
// block = [16, 16]
// reference = "reference.py:squared_distances"
// [args]
// x = "in float32[n, dim]"
// y = "in float32[m, dim]"
// out = "out float32[n, m]"
// n = "int32"
// m = "int32"
// dim = "int32"
// ///
__global__ void squared_distances(const float* x, const float* y, float* out, int n, int m, int dim) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= m) return;
  float s = 0.0f;
  for (int d = 0; d < dim; d++) {
    float t = x[i * dim + d] - y[j * dim + d];
    s += t * t;
  }
  out[(size_t)i * m + j] = s;
}

// /// kernelmate
// sizes = [{ batch = 16, depth = 64, width = 64, length = 4096 }, { batch = 2, depth = 3, width = 5, length = 37 }, { batch = 1, depth = 1, width = 1, length = 1 }]
// grid = ["cdiv(length, 128)", "width", "batch"]
// block = 128
// reference = "reference.py:conv_line"
// [args]
// x = "in float32[batch, depth, length] ~ normal"
// w = "in float32[width, depth, 7] ~ normal"
// out = "out float32[batch, width, length]"
// depth = "int32"
// width = "int32"
// length = "int32"
// ///
__global__ void conv_line(const float* x, const float* w, float* out, int depth, int width, int length) {
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= length) return;
  int o = blockIdx.y, b = blockIdx.z;
  float s = 0.0f;
  for (int c = 0; c < depth; c++)
    for (int k = 0; k < 7; k++) {
      int q = p + k - 3;
      if (q >= 0 && q < length) s += x[((size_t)b * depth + c) * length + q] * w[(o * depth + c) * 7 + k];
    }
  out[((size_t)b * width + o) * length + p] = s;
}

// /// kernelmate
// sizes = [{ n = 16, depth = 64, width = 64, height = 56, across = 56 }, { n = 2, depth = 3, width = 5, height = 9, across = 21 }, { n = 1, depth = 1, width = 1, height = 1, across = 1 }]
// grid = ["cdiv(height * across, 128)", "width", "n"]
// block = 128
// reference = "reference.py:conv_image"
// [args]
// x = "in float32[n, depth, height, across] ~ normal"
// w = "in float32[width, depth, 3, 3] ~ normal"
// bias = "in float32[width] ~ normal"
// out = "out float32[n, width, height, across]"
// depth = "int32"
// width = "int32"
// height = "int32"
// across = "int32"
// ///
__global__ void conv_image(const float* x, const float* w, const float* bias, float* out, int depth, int width, int height, int across) {
  int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= height * across) return;
  int i = p / across, j = p % across, o = blockIdx.y, n = blockIdx.z;
  float s = bias[o];
  for (int c = 0; c < depth; c++)
    for (int a = 0; a < 3; a++)
      for (int b = 0; b < 3; b++) {
        int r = i + a - 1, q = j + b - 1;
        if (r >= 0 && r < height && q >= 0 && q < across)
          s += x[(((size_t)n * depth + c) * height + r) * across + q] * w[((o * depth + c) * 3 + a) * 3 + b];
      }
  out[((size_t)n * width + o) * height * across + p] = s > 0.0f ? s : 0.0f;
}
