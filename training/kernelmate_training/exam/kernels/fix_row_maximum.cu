// Largest value of every row; a block per row. Values may all be negative.

// /// kernelmate
// sizes = [{ rows = 64, cols = 500 }, { rows = 9, cols = 41 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 128
// shared = "block * 4"
// require = ["cols > 0"]
// reference = "m.max(axis=1)"
// [args]
// m = "in float32[rows, cols] ~ uniform(-9, -1)"
// top = "out float32[rows]"
// cols = "int32"
// ///
__global__ void rowMaximum(const float* m, float* top, int cols) {
  extern __shared__ float seen[];
  float mine = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) mine = fmaxf(mine, m[blockIdx.x * cols + c]);
  seen[threadIdx.x] = mine;
  __syncthreads();
  for (int left = blockDim.x >> 1; left; left >>= 1) {
    if (threadIdx.x < left) seen[threadIdx.x] = fmaxf(seen[threadIdx.x], seen[threadIdx.x + left]);
    __syncthreads();
  }
  if (!threadIdx.x) top[blockIdx.x] = seen[0];
}
