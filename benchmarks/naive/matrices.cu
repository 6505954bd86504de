// Products of matrices of half, bfloat16 and bytes, one thread for each result, as first written.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ m = 4096, n = 4096, k = 4096 }, { m = 37, n = 61, k = 53 }, { m = 1, n = 1, k = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "reference.py:half_matmul"
// [args]
// a = "in float16[m, k] ~ normal"
// b = "in float16[k, n] ~ normal"
// c = "out float16[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void half_matmul(const __half* a, const __half* b, __half* c, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  float s = 0.0f;
  for (int i = 0; i < k; i++) s += __half2float(a[row * k + i]) * __half2float(b[i * n + col]);
  c[row * n + col] = __float2half(s);
}

// /// kernelmate
// sizes = [{ rows = 4096, outs = 4096, ins = 1024 }, { rows = 37, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:brain_linear_gelu"
// [args]
// x = "in bfloat16[rows, ins] ~ normal"
// weight = "in bfloat16[outs, ins] ~ normal"
// bias = "in bfloat16[outs] ~ normal"
// y = "out bfloat16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void brain_linear_gelu(const __nv_bfloat16* x, const __nv_bfloat16* weight, const __nv_bfloat16* bias,
                                  __nv_bfloat16* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || r >= rows) return;
  float s = __bfloat162float(bias[o]);
  for (int i = 0; i < ins; i++) s += __bfloat162float(x[r * ins + i]) * __bfloat162float(weight[o * ins + i]);
  float cubic = 0.7978845608f * (s + 0.044715f * s * s * s);
  y[r * outs + o] = __float2bfloat16(0.5f * s * (1.0f + tanhf(cubic)));
}

// /// kernelmate
// sizes = [{ heads = 64, queries = 1024, keys = 1024, dim = 64 }, { heads = 3, queries = 37, keys = 53, dim = 19 }, { heads = 1, queries = 1, keys = 1, dim = 1 }]
// grid = ["cdiv(keys, 16)", "cdiv(queries, 16)", "heads"]
// block = [16, 16]
// reference = "reference.py:half_scores"
// [args]
// q = "in float16[heads, queries, dim] ~ normal"
// k = "in float16[heads, keys, dim] ~ normal"
// scores = "out float16[heads, queries, keys]"
// scale = "float32 = 0.125"
// queries = "int32"
// keys = "int32"
// dim = "int32"
// ///
__global__ void half_scores(const __half* q, const __half* k, __half* scores, float scale, int queries, int keys,
                            int dim) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= queries || j >= keys) return;
  q += (size_t)blockIdx.z * queries * dim;
  k += (size_t)blockIdx.z * keys * dim;
  float s = 0.0f;
  for (int d = 0; d < dim; d++) s += __half2float(q[i * dim + d]) * __half2float(k[j * dim + d]);
  scores[((size_t)blockIdx.z * queries + i) * keys + j] = __float2half(scale * s);
}

// /// kernelmate
// sizes = [{ heads = 64, queries = 1024, keys = 1024, dim = 64 }, { heads = 3, queries = 37, keys = 53, dim = 19 }, { heads = 1, queries = 1, keys = 1, dim = 1 }]
// grid = ["cdiv(dim, 16)", "cdiv(queries, 16)", "heads"]
// block = [16, 16]
// reference = "reference.py:half_weighted"
// [args]
// p = "in float16[heads, queries, keys] ~ uniform(0, 1)"
// v = "in float16[heads, keys, dim] ~ normal"
// out = "out float16[heads, queries, dim]"
// queries = "int32"
// keys = "int32"
// dim = "int32"
// ///
__global__ void half_weighted(const __half* p, const __half* v, __half* out, int queries, int keys, int dim) {
  int d = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= queries || d >= dim) return;
  size_t h = blockIdx.z;
  float s = 0.0f;
  for (int j = 0; j < keys; j++)
    s += __half2float(p[(h * queries + i) * keys + j]) * __half2float(v[(h * keys + j) * dim + d]);
  out[(h * queries + i) * dim + d] = __float2half(s);
}

// /// kernelmate
// sizes = [{ rows = 4096, outs = 4096, ins = 4096 }, { rows = 37, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:byte_linear"
// [args]
// x = "in int8[rows, ins] ~ integers(-127, 127)"
// weight = "in int8[outs, ins] ~ integers(-127, 127)"
// x_scale = "in float32[rows] ~ uniform(0.001, 0.1)"
// weight_scale = "in float32[outs] ~ uniform(0.001, 0.1)"
// y = "out float32[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void byte_linear(const signed char* x, const signed char* weight, const float* x_scale,
                            const float* weight_scale, float* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || r >= rows) return;
  int s = 0;
  for (int i = 0; i < ins; i++) s += x[r * ins + i] * weight[o * ins + i];
  y[r * outs + o] = s * x_scale[r] * weight_scale[o];
}

// /// kernelmate
// sizes = [{ rows = 4096, outs = 4096, ins = 4096 }, { rows = 37, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:half_weight_grad"
// [args]
// dy = "in float16[rows, outs] ~ normal"
// x = "in float16[rows, ins] ~ normal"
// dw = "out float32[outs, ins]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void half_weight_grad(const __half* dy, const __half* x, float* dw, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  if (o >= outs || i >= ins) return;
  float s = 0.0f;
  for (int r = 0; r < rows; r++) s += __half2float(dy[(size_t)r * outs + o]) * __half2float(x[(size_t)r * ins + i]);
  dw[(size_t)o * ins + i] = s;
}

// /// kernelmate
// sizes = [{ rows = 1, outs = 8192, ins = 4096 }, { rows = 3, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 128)", "rows"]
// block = 128
// reference = "reference.py:half_decode"
// [args]
// x = "in float16[rows, ins] ~ normal"
// weight = "in float16[outs, ins] ~ normal"
// y = "out float16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void half_decode(const __half* x, const __half* weight, __half* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y;
  if (o >= outs) return;
  float s = 0.0f;
  for (int i = 0; i < ins; i++) s += __half2float(x[r * ins + i]) * __half2float(weight[(size_t)o * ins + i]);
  y[r * outs + o] = __float2half(s);
}

// /// kernelmate
// sizes = [{ rows = 16, outs = 8192, ins = 4096 }, { rows = 5, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 128)", "rows"]
// block = 128
// reference = "reference.py:brain_decode"
// [args]
// x = "in bfloat16[rows, ins] ~ normal"
// weight = "in bfloat16[ins, outs] ~ normal"
// residual = "in bfloat16[rows, outs] ~ normal"
// y = "out bfloat16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void brain_decode(const __nv_bfloat16* x, const __nv_bfloat16* weight, const __nv_bfloat16* residual,
                             __nv_bfloat16* y, int rows, int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y;
  if (o >= outs) return;
  float s = 0.0f;
  for (int i = 0; i < ins; i++) s += __bfloat162float(x[r * ins + i]) * __bfloat162float(weight[(size_t)i * outs + o]);
  y[r * outs + o] = __float2bfloat16(s + __bfloat162float(residual[r * outs + o]));
}

// /// kernelmate
// sizes = [{ rows = 64, outs = 8192, ins = 4096 }, { rows = 19, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 128)", "rows"]
// block = 128
// reference = "reference.py:half_decode_relu"
// [args]
// x = "in float16[rows, ins] ~ normal"
// weight = "in float16[outs, ins] ~ normal"
// bias = "in float32[outs] ~ normal"
// y = "out float16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void half_decode_relu(const __half* x, const __half* weight, const float* bias, __half* y, int rows,
                                 int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y;
  if (o >= outs) return;
  float s = bias[o];
  for (int i = 0; i < ins; i++) s += __half2float(x[r * ins + i]) * __half2float(weight[(size_t)o * ins + i]);
  y[r * outs + o] = __float2half(s > 0.0f ? s : 0.0f);
}

// /// kernelmate
// sizes = [{ m = 2048, n = 2048, k = 1023 }, { m = 37, n = 61, k = 53 }, { m = 1, n = 1, k = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "reference.py:half_ragged"
// [args]
// a = "in float16[m, k] ~ normal"
// b = "in float16[k, n] ~ normal"
// c = "out float32[m, n]"
// alpha = "float32 = 0.5"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void half_ragged(const __half* a, const __half* b, float* c, float alpha, int m, int n, int k) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= m || col >= n) return;
  float s = 0.0f;
  for (int i = 0; i < k; i++) s += __half2float(a[row * k + i]) * __half2float(b[i * n + col]);
  c[row * n + col] = alpha * s;
}

// /// kernelmate
// sizes = [{ rows = 16, outs = 8192, ins = 4096 }, { rows = 5, outs = 53, ins = 71 }, { rows = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 128)", "rows"]
// block = 128
// reference = "reference.py:byte_weight_linear"
// [args]
// x = "in float16[rows, ins] ~ normal"
// weight = "in int8[outs, ins] ~ integers(-127, 127)"
// scale = "in float16[outs] ~ uniform(0.001, 0.1)"
// y = "out float16[rows, outs]"
// rows = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void byte_weight_linear(const __half* x, const signed char* weight, const __half* scale, __half* y, int rows,
                                   int outs, int ins) {
  int o = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y;
  if (o >= outs) return;
  float s = 0.0f;
  for (int i = 0; i < ins; i++) s += __half2float(x[r * ins + i]) * (float)weight[(size_t)o * ins + i];
  y[r * outs + o] = __float2half(s * __half2float(scale[o]));
}
