// Scales every row to unit length, a warp per row. UNROLL independent partial sums hide the latency of the loads; both
// instances below are judged.

// /// kernelmate
// sizes = [{ rows = 512, cols = 256 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, block_y)"
// block = [32, 8]
// instances = ["l2_normalize<float, 1>", "l2_normalize<float, 4>"]
// reference = "reference.py:l2_normalize"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// floor = "float32 = 1e-12"
// ///
template <typename T, int UNROLL>
__global__ void l2_normalize(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, float floor) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;  // whole warps leave: a warp is one row
  const T* in = x + (size_t)row * cols;
  T* out = y + (size_t)row * cols;

  float partial[UNROLL] = {};
  for (int base = threadIdx.x; base < cols; base += 32 * UNROLL) {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int c = base + 32 * u;
      const float v = c < cols ? (float)in[c] : 0.0f;
      partial[u] += v * v;
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) squares += partial[u];
  for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);

  const float scale = 1.0f / fmaxf(sqrtf(squares), floor);
  for (int c = threadIdx.x; c < cols; c += 32) out[c] = (T)((float)in[c] * scale);
}
