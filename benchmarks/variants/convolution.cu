// variants of convolution: BLOCK=64 | BLOCK=256 | BLOCK=1024
// variants of convolution_shared: BLOCK=64 | BLOCK=256 | BLOCK=1024
// variants of convolution_window: BLOCK=128 ITEMS=4 | BLOCK=128 ITEMS=8
#ifndef BLOCK
#define BLOCK 256
#endif
#ifndef ITEMS
#define ITEMS 4
#endif
#define RADIUS 8

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// weights = "in float32[17]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void convolution(const float* x, const float* weights, float* y, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int j = -RADIUS; j <= RADIUS; ++j)
    if (i + j >= 0 && i + j < n) sum += weights[j + RADIUS] * x[i + j];
  y[i] = sum;
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// weights = "in float32[17]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void convolution_shared(const float* x, const float* weights, float* y, int n) {
  __shared__ float tile[BLOCK + 2 * RADIUS];
  __shared__ float taps[2 * RADIUS + 1];
  const int first = blockIdx.x * BLOCK - RADIUS;
  for (int i = threadIdx.x; i < BLOCK + 2 * RADIUS; i += BLOCK)
    tile[i] = first + i >= 0 && first + i < n ? x[first + i] : 0.0f;
  if (threadIdx.x < 2 * RADIUS + 1) taps[threadIdx.x] = weights[threadIdx.x];
  __syncthreads();
  float sum = 0.0f;
  for (int j = 0; j <= 2 * RADIUS; ++j) sum += taps[j] * tile[threadIdx.x + j];
  if (blockIdx.x * BLOCK + threadIdx.x < n) y[blockIdx.x * BLOCK + threadIdx.x] = sum;
}

// Each thread gives ITEMS neighbouring results out of a window that it keeps in registers.
// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 128, ITEMS = 4 }]
// grid = "cdiv(n, BLOCK * ITEMS)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// weights = "in float32[17]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void convolution_window(const float* x, const float* weights, float* y, int n) {
  const int first = (blockIdx.x * BLOCK + threadIdx.x) * ITEMS;
  float window[ITEMS + 2 * RADIUS];
#pragma unroll
  for (int i = 0; i < ITEMS + 2 * RADIUS; ++i) {
    const int at = first + i - RADIUS;
    window[i] = at >= 0 && at < n ? x[at] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j <= 2 * RADIUS; ++j) sum += weights[j] * window[i + j];
    if (first + i < n) y[first + i] = sum;
  }
}
