// variants of scan_doubling: BLOCK=1024
// variants of scan_warps: BLOCK=1024
// variants of scan_chunks: ITEMS=2 | ITEMS=4 | ITEMS=8 | ITEMS=32
#ifndef BLOCK
#define BLOCK 1024
#endif
#ifndef ITEMS
#define ITEMS 4
#endif

// /// kernelmate
// sizes = [{ rows = 1024, cols = 1024 }]
// grid = "rows"
// block = 1024
// require = ["cols == 1024"]
// reference = "np.cumsum(x, axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void scan_doubling(const float* x, float* y, int cols) {
  __shared__ float part[2][BLOCK];
  int now = 0;
  part[0][threadIdx.x] = x[(size_t)blockIdx.x * cols + threadIdx.x];
  __syncthreads();
  for (int step = 1; step < BLOCK; step *= 2) {
    part[1 - now][threadIdx.x] = part[now][threadIdx.x] + (threadIdx.x >= step ? part[now][threadIdx.x - step] : 0.0f);
    now = 1 - now;
    __syncthreads();
  }
  y[(size_t)blockIdx.x * cols + threadIdx.x] = part[now][threadIdx.x];
}

// /// kernelmate
// sizes = [{ rows = 1024, cols = 1024 }]
// grid = "rows"
// block = 1024
// require = ["cols == 1024"]
// reference = "np.cumsum(x, axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void scan_warps(const float* x, float* y, int cols) {
  __shared__ float ends[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = x[(size_t)blockIdx.x * cols + threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) ends[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    float end = ends[lane];
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += other;
    }
    ends[lane] = end;
  }
  __syncthreads();
  y[(size_t)blockIdx.x * cols + threadIdx.x] = sum + (warp > 0 ? ends[warp - 1] : 0.0f);
}

// Each thread adds up ITEMS neighbours, and the block scans the threads' sums.
// /// kernelmate
// sizes = [{ rows = 1024, cols = 1024, ITEMS = 4 }]
// grid = "rows"
// block = "1024 // ITEMS"
// require = ["cols == 1024"]
// reference = "np.cumsum(x, axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void scan_chunks(const float* x, float* y, int cols) {
  __shared__ float part[1024 / ITEMS];
  const float* row = x + (size_t)blockIdx.x * cols;
  float mine[ITEMS], sum = 0.0f;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) mine[i] = sum += row[threadIdx.x * ITEMS + i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 1; step < 1024 / ITEMS; step *= 2) {
    const float before = threadIdx.x >= step ? part[threadIdx.x - step] : 0.0f;
    __syncthreads();
    part[threadIdx.x] += before;
    __syncthreads();
  }
  const float base = threadIdx.x > 0 ? part[threadIdx.x - 1] : 0.0f;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) y[(size_t)blockIdx.x * cols + threadIdx.x * ITEMS + i] = base + mine[i];
}
