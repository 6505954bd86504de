// Tiles of 128 x 128 with 8 x 8 results per thread and double-buffered shared memory.

// /// kernelmate
// sizes = [{ batch = 512, rows = 128, cols = 128, depth = 128 }, { batch = 3, rows = 17, cols = 9, depth = 21 }, { batch = 1, rows = 1, cols = 1, depth = 1 }]
// grid = ["cdiv(cols, 128)", "cdiv(rows, 128)", "batch"]
// block = 256
// reference = "../naive/reference.py:batched_matmul"
// [args]
// a = "in float32[batch, rows, depth]"
// b = "in float32[batch, depth, cols]"
// c = "out float32[batch, rows, cols]"
// rows = "int32"
// cols = "int32"
// depth = "int32"
// ///
__global__ void __launch_bounds__(256, 2)
batched_matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int rows, int cols,
               int depth) {
  __shared__ __align__(16) float as[2][8][132], bs[2][8][128];
  int t = threadIdx.x, top = blockIdx.y * 128, left = blockIdx.x * 128;
  int ar = t / 2, ak = t % 2 * 4, bk = t / 32, bc = t % 32 * 4, ty = t / 16 * 4, tx = t % 16 * 4;
  a += (size_t)blockIdx.z * rows * depth;
  b += (size_t)blockIdx.z * depth * cols;
  c += (size_t)blockIdx.z * rows * cols;
  bool wide = depth % 4 == 0 && cols % 4 == 0 && ((size_t)a | (size_t)b) % 16 == 0;
  float acc[8][8] = {};
  __align__(16) float pa[4], pb[4];
  auto fetch = [&](int k) {
    if (wide) {
      float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      bool in_a = top + ar < rows && k + ak < depth, in_b = k + bk < depth && left + bc < cols;
      *reinterpret_cast<float4*>(pa) =
          in_a ? *reinterpret_cast<const float4*>(a + (size_t)(top + ar) * depth + k + ak) : zero;
      *reinterpret_cast<float4*>(pb) =
          in_b ? *reinterpret_cast<const float4*>(b + (size_t)(k + bk) * cols + left + bc) : zero;
      return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      pa[e] = top + ar < rows && k + ak + e < depth ? a[(size_t)(top + ar) * depth + k + ak + e] : 0.0f;
      pb[e] = k + bk < depth && left + bc + e < cols ? b[(size_t)(k + bk) * cols + left + bc + e] : 0.0f;
    }
  };
  fetch(0);
  for (int k = 0, at = 0; k < depth; k += 8, at ^= 1) {
#pragma unroll
    for (int e = 0; e < 4; e++) as[at][ak + e][ar] = pa[e];
    *reinterpret_cast<float4*>(&bs[at][bk][bc]) = *reinterpret_cast<float4*>(pb);
    __syncthreads();
    if (k + 8 < depth) fetch(k + 8);  // the next tile travels while this one is multiplied
#pragma unroll
    for (int d = 0; d < 8; d++) {
      __align__(16) float p[8], q[8];
      *reinterpret_cast<float4*>(p) = *reinterpret_cast<float4*>(&as[at][d][ty]);
      *reinterpret_cast<float4*>(p + 4) = *reinterpret_cast<float4*>(&as[at][d][ty + 64]);
      *reinterpret_cast<float4*>(q) = *reinterpret_cast<float4*>(&bs[at][d][tx]);
      *reinterpret_cast<float4*>(q + 4) = *reinterpret_cast<float4*>(&bs[at][d][tx + 64]);
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] += p[i] * q[j];
    }
  }
  bool packed = cols % 4 == 0 && (size_t)c % 16 == 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int r = top + ty + i % 4 + i / 4 * 64;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      int col = left + tx + j * 16;
      if (r >= rows || col >= cols) continue;
      float* to = c + (size_t)r * cols + col;
      if (packed) {
        *reinterpret_cast<float4*>(to) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (col + e < cols) to[e] = acc[i][j + e];
      }
    }
  }
}
