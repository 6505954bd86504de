// Element by element, as first written: one thread for each.

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:axpby_clip"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// out = "out float32[n]"
// n = "int32"
// alpha = "float32 = 1.5"
// beta = "float32 = -0.25"
// low = "float32 = -1"
// high = "float32 = 1"
// ///
__global__ void axpby_clip(const float* x, const float* y, float* out, int n, float alpha, float beta, float low,
                           float high) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = alpha * x[i] + beta * y[i];
    if (v < low) v = low;
    if (v > high) v = high;
    out[i] = v;
  }
}

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:silu_mul"
// [args]
// gate = "in float32[n]"
// up = "in float32[n]"
// out = "out float32[n]"
// n = "int64"
// ///
__global__ void silu_mul(const float* gate, const float* up, float* out, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

// /// kernelmate
// sizes = [{ rows = 8192, cols = 2048 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 8)"]
// block = [32, 8]
// reference = "reference.py:bias_relu"
// [args]
// x = "in float32[rows, cols]"
// bias = "in float32[cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void bias_relu(const float* x, const float* bias, float* out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) {
    float v = x[r * cols + c] + bias[c];
    out[r * cols + c] = v > 0.0f || v != v ? v : 0.0f;
  }
}

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:masked_fill"
// [args]
// x = "in float32[n]"
// mask = "in uint8[n] ~ integers(0, 2)"
// out = "out float32[n]"
// n = "int32"
// value = "float32 = -10000"
// ///
__global__ void masked_fill(const float* x, const unsigned char* mask, float* out, int n, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = mask[i] ? value : x[i];
}

#include <cuda_fp16.h>
#include <cuda_bf16.h>

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:half_hadamard"
// [args]
// a = "in float16[n]"
// b = "in float16[n]"
// out = "out float16[n]"
// n = "int32"
// ///
__global__ void half_hadamard(const __half* a, const __half* b, __half* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hmul(a[i], b[i]);
}

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:brain_add"
// [args]
// a = "in bfloat16[n]"
// b = "in bfloat16[n]"
// out = "out bfloat16[n]"
// n = "int32"
// ///
__global__ void brain_add(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __float2bfloat16(__bfloat162float(a[i]) + __bfloat162float(b[i]));
}

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:unpack_nibbles"
// [args]
// packed = "in uint8[n]"
// out = "out int8[2 * n]"
// n = "int32"
// ///
__global__ void unpack_nibbles(const unsigned char* packed, signed char* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[2 * i] = (signed char)((packed[i] & 15) - 8);
    out[2 * i + 1] = (signed char)((packed[i] >> 4) - 8);
  }
}

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:gray"
// [args]
// rgb = "in uint8[n, 3]"
// out = "out uint8[n]"
// n = "int32"
// ///
__global__ void gray(const unsigned char* rgb, unsigned char* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (77 * rgb[3 * i] + 150 * rgb[3 * i + 1] + 29 * rgb[3 * i + 2] + 128) >> 8;
}

// /// kernelmate
// sizes = [{ n = 8388608 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:complex_multiply"
// [args]
// a = "in float32[n, 2]"
// b = "in float32[n, 2]"
// out = "out float32[n, 2]"
// n = "int32"
// ///
__global__ void complex_multiply(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[2 * i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
    out[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
  }
}

// /// kernelmate
// sizes = [{ rows = 4096, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:outer_add"
// [args]
// x = "in float32[rows]"
// y = "in float32[cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void outer_add(const float* x, const float* y, float* out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) out[r * cols + c] = x[r] + y[c];
}

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:sgd_momentum"
// [args]
// weight = "inout float32[n]"
// velocity = "inout float32[n]"
// grad = "in float32[n]"
// n = "int32"
// rate = "float32 = 0.01"
// momentum = "float32 = 0.9"
// ///
__global__ void sgd_momentum(float* weight, float* velocity, const float* grad, int n, float rate, float momentum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    velocity[i] = momentum * velocity[i] + grad[i];
    weight[i] = weight[i] - rate * velocity[i];
  }
}
