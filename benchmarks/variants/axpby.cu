// variants of axpby: BLOCK=32 | BLOCK=64 | BLOCK=128 | BLOCK=256 | BLOCK=1024
// variants of axpby_vector: BLOCK=64 | BLOCK=256 | BLOCK=1024
// variants of axpby_blocked: BLOCK=256 ITEMS=4 | BLOCK=256 ITEMS=16
// variants of axpby_grid_stride: BLOCK=256 BLOCKS=132 | BLOCK=256 BLOCKS=1056 | BLOCK=1024 BLOCKS=264
#ifndef BLOCK
#define BLOCK 256
#endif
#ifndef ITEMS
#define ITEMS 4
#endif

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// reference = "a * x + b * y"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// a = "float32 = 0.75"
// b = "float32 = 0.5"
// n = "int32"
// ///
__global__ void axpby(const float* x, const float* y, float* z, float a, float b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + b * y[i];
}

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK * 4)"
// block = "BLOCK"
// reference = "a * x + b * y"
// require = ["n % 4 == 0"]
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// a = "float32 = 0.75"
// b = "float32 = 0.5"
// n = "int32"
// ///
__global__ void axpby_vector(const float* x, const float* y, float* z, float a, float b, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * 4 >= n) return;
  const float4 p = reinterpret_cast<const float4*>(x)[i];
  const float4 q = reinterpret_cast<const float4*>(y)[i];
  reinterpret_cast<float4*>(z)[i] =
      make_float4(a * p.x + b * q.x, a * p.y + b * q.y, a * p.z + b * q.z, a * p.w + b * q.w);
}

// Each thread takes neighbouring elements: lanes of a warp lie ITEMS elements apart.
// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256, ITEMS = 4 }]
// grid = "cdiv(n, BLOCK * ITEMS)"
// block = "BLOCK"
// reference = "a * x + b * y"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// a = "float32 = 0.75"
// b = "float32 = 0.5"
// n = "int32"
// ///
__global__ void axpby_blocked(const float* x, const float* y, float* z, float a, float b, int n) {
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
  for (int i = first; i < first + ITEMS && i < n; ++i) z[i] = a * x[i] + b * y[i];
}

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256, BLOCKS = 1056 }]
// grid = "BLOCKS"
// block = "BLOCK"
// reference = "a * x + b * y"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// a = "float32 = 0.75"
// b = "float32 = 0.5"
// n = "int32"
// ///
__global__ void axpby_grid_stride(const float* x, const float* y, float* z, float a, float b, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) z[i] = a * x[i] + b * y[i];
}
