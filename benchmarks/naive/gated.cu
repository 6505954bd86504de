// Products of matrices of which several make one result, one thread for each result, as first written.

#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ rows = 4096, outs = 2048, ins = 2048 }, { rows = 33, outs = 37, ins = 19 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:swiglu_linear"
// [args]
// x = "in float32[rows, ins] ~ normal"
// gate = "in float32[ins, outs] ~ normal"
// up = "in float32[ins, outs] ~ normal"
// y = "out float32[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void swiglu_linear(const float* x, const float* gate, const float* up, float* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || r >= rows) return;
  float g = 0.0f, u = 0.0f;
  for (int i = 0; i < ins; i++) {
    g += x[r * ins + i] * gate[i * outs + o];
    u += x[r * ins + i] * up[i * outs + o];
  }
  y[r * outs + o] = g / (1.0f + expf(-g)) * u;
}

// The weights of the gate and of the values are the two halves of one matrix.
// /// kernelmate
// sizes = [{ rows = 4096, outs = 2048, ins = 2048 }, { rows = 33, outs = 37, ins = 19 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:half_swiglu_linear"
// [args]
// x = "in float16[rows, ins] ~ normal"
// w = "in float16[2 * outs, ins] ~ normal"
// y = "out float16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void half_swiglu_linear(const __half* x, const __half* w, __half* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || r >= rows) return;
  float g = 0.0f, u = 0.0f;
  for (int i = 0; i < ins; i++) {
    g += __half2float(x[r * ins + i]) * __half2float(w[o * ins + i]);
    u += __half2float(x[r * ins + i]) * __half2float(w[(outs + o) * ins + i]);
  }
  y[r * outs + o] = __float2half(g / (1.0f + expf(-g)) * u);
}

// /// kernelmate
// sizes = [{ m = 4096, n = 2048, k = 2048 }, { m = 33, n = 37, k = 19 }, { m = 1, n = 1, k = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "reference.py:complex_matmul"
// [args]
// a_real = "in float32[m, k] ~ normal"
// a_imag = "in float32[m, k] ~ normal"
// b_real = "in float32[k, n] ~ normal"
// b_imag = "in float32[k, n] ~ normal"
// c_real = "out float32[m, n]"
// c_imag = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void complex_matmul(const float* a_real, const float* a_imag, const float* b_real, const float* b_imag,
                               float* c_real, float* c_imag, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (col >= n || row >= m) return;
  float re = 0.0f, im = 0.0f;
  for (int i = 0; i < k; i++) {
    float ar = a_real[row * k + i], ai = a_imag[row * k + i], br = b_real[i * n + col], bi = b_imag[i * n + col];
    re += ar * br - ai * bi;
    im += ar * bi + ai * br;
  }
  c_real[row * n + col] = re;
  c_imag[row * n + col] = im;
}

// /// kernelmate
// sizes = [{ m = 4096, n = 2048, dim = 2048 }, { m = 33, n = 37, dim = 19 }, { m = 1, n = 1, dim = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "reference.py:cosine_similarities"
// [args]
// a = "in float32[m, dim] ~ normal"
// b = "in float32[n, dim] ~ normal"
// y = "out float32[m, n]"
// m = "int32"
// n = "int32"
// dim = "int32"
// ///
__global__ void cosine_similarities(const float* a, const float* b, float* y, int m, int n, int dim) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (j >= n || i >= m) return;
  float ab = 0.0f, aa = 0.0f, bb = 0.0f;
  for (int d = 0; d < dim; d++) {
    ab += a[i * dim + d] * b[j * dim + d];
    aa += a[i * dim + d] * a[i * dim + d];
    bb += b[j * dim + d] * b[j * dim + d];
  }
  y[i * n + j] = ab / (sqrtf(aa) * sqrtf(bb));
}
