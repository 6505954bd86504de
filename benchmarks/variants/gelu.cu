// variants of gelu: BLOCK=64 | BLOCK=256 | BLOCK=1024
// variants of gelu_double: BLOCK=256
// variants of gelu_fast: BLOCK=256
// variants of gelu_vector: BLOCK=64 | BLOCK=256
#ifndef BLOCK
#define BLOCK 256
#endif

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void gelu(const float* x, float* y, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void gelu_double(const float* x, float* y, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  y[i] = 0.5 * v * (1.0 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// tolerance = { rtol = 1e-4, atol = 1e-5 }
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void gelu_fast(const float* x, float* y, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  y[i] = __fdividef(v, 1.0f + __expf(-1.5957691216f * (v + 0.044715f * v * v * v)));
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK * 4)"
// block = "BLOCK"
// require = ["n % 4 == 0"]
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__device__ __forceinline__ float one(float v) {
  return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}
__global__ void gelu_vector(const float* x, float* y, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i * 4 >= n) return;
  const float4 v = reinterpret_cast<const float4*>(x)[i];
  reinterpret_cast<float4*>(y)[i] = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
}
