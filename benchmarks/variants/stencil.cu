// variants of stencil: BX=32 BY=4 | BX=16 BY=16 | BX=4 BY=32 | BX=64 BY=4 | BX=256 BY=1 | BX=32 BY=32
// variants of stencil_tiled: BX=16 BY=16 | BX=32 BY=8 | BX=32 BY=32
// variants of stencil_column: BX=128 ITEMS=8 | BX=32 ITEMS=32
#ifndef BX
#define BX 32
#endif
#ifndef BY
#define BY 8
#endif
#ifndef ITEMS
#define ITEMS 8
#endif

// /// kernelmate
// sizes = [{ h = 2048, w = 2048, BX = 32, BY = 8 }]
// grid = ["cdiv(w, BX)", "cdiv(h, BY)"]
// block = ["BX", "BY"]
// [args]
// x = "in float32[h, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void stencil(const float* x, float* y, int h, int w) {
  const int i = blockIdx.x * BX + threadIdx.x, j = blockIdx.y * BY + threadIdx.y;
  if (i >= w || j >= h) return;
  const float left = i > 0 ? x[j * w + i - 1] : 0.0f, right = i < w - 1 ? x[j * w + i + 1] : 0.0f;
  const float up = j > 0 ? x[(j - 1) * w + i] : 0.0f, down = j < h - 1 ? x[(j + 1) * w + i] : 0.0f;
  y[j * w + i] = 0.5f * x[j * w + i] + 0.125f * (left + right + up + down);
}

// /// kernelmate
// sizes = [{ h = 2048, w = 2048, BX = 32, BY = 8 }]
// grid = ["cdiv(w, BX)", "cdiv(h, BY)"]
// block = ["BX", "BY"]
// [args]
// x = "in float32[h, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void stencil_tiled(const float* x, float* y, int h, int w) {
  __shared__ float tile[BY + 2][BX + 2];
  const int i = blockIdx.x * BX, j = blockIdx.y * BY;
  for (int at = threadIdx.y * BX + threadIdx.x; at < (BX + 2) * (BY + 2); at += BX * BY) {
    const int col = i + at % (BX + 2) - 1, row = j + at / (BX + 2) - 1;
    tile[at / (BX + 2)][at % (BX + 2)] = row >= 0 && row < h && col >= 0 && col < w ? x[row * w + col] : 0.0f;
  }
  __syncthreads();
  const int p = threadIdx.x + 1, q = threadIdx.y + 1;
  if (i + threadIdx.x < w && j + threadIdx.y < h)
    y[(j + threadIdx.y) * w + i + threadIdx.x] =
        0.5f * tile[q][p] + 0.125f * (tile[q][p - 1] + tile[q][p + 1] + tile[q - 1][p] + tile[q + 1][p]);
}

// Each thread walks down a column and keeps the rows above and below in registers.
// /// kernelmate
// sizes = [{ h = 2048, w = 2048, BX = 128, ITEMS = 8 }]
// grid = ["cdiv(w, BX)", "cdiv(h, ITEMS)"]
// block = "BX"
// [args]
// x = "in float32[h, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void stencil_column(const float* x, float* y, int h, int w) {
  const int i = blockIdx.x * BX + threadIdx.x, first = blockIdx.y * ITEMS;
  if (i >= w) return;
  float up = first > 0 ? x[(first - 1) * w + i] : 0.0f, here = x[first * w + i];
  for (int j = first; j < first + ITEMS && j < h; ++j) {
    const float down = j < h - 1 ? x[(j + 1) * w + i] : 0.0f;
    const float left = i > 0 ? x[j * w + i - 1] : 0.0f, right = i < w - 1 ? x[j * w + i + 1] : 0.0f;
    y[j * w + i] = 0.5f * here + 0.125f * (left + right + up + down);
    up = here;
    here = down;
  }
}
