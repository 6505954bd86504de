// 32 columns per block, 256 rows at a time: eight rows per warp, whose sums are scanned across the warps.

// /// kernelmate
// sizes = [{ rows = 4096, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(cols, 32)"
// block = 1024
// reference = "../naive/reference.py:column_cumsum"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void __launch_bounds__(1024)
column_cumsum(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  __shared__ float part[32][33];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
  float v[8], next[8], before = 0.0f;
  auto fetch = [&](int start) {
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int r = start + warp * 8 + k;
      next[k] = r < rows && c < cols ? __ldcs(x + (size_t)r * cols + c) : 0.0f;
    }
  };
  fetch(0);
  for (int start = 0; start < rows; start += 256) {
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = next[k];
    fetch(start + 256);  // the next rows travel while these are summed
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += v[k];
    part[warp][lane] = sum;
    __syncthreads();
    sum = part[lane][warp];  // this warp scans one column
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
      float o = __shfl_up_sync(~0u, sum, s);
      if (lane >= s) sum += o;
    }
    part[lane][warp] = sum;
    __syncthreads();
    float upto = before + (warp ? part[warp - 1][lane] : 0.0f);
    before += part[31][lane];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int r = start + warp * 8 + k;
      upto += v[k];
      if (r < rows && c < cols) __stcs(out + (size_t)r * cols + c, upto);
    }
    __syncthreads();
  }
}
