// A warp per row with eight 16-byte loads in flight; the smaller position wins a tie.

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 8)"
// block = 256
// require = ["cols > 0"]
// reference = "../naive/reference.py:row_argmax"
// [args]
// x = "in float32[rows, cols]"
// out = "out int32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_argmax(const float* __restrict__ x, int* __restrict__ out, int rows, int cols) {
  int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  x += (size_t)r * cols;
  float m = -INFINITY;
  int best = 0x7fffffff;
  if (cols % 4 == 0 && (size_t)x % 16 == 0) {
    for (int start = lane * 4; start < cols; start += 1024) {
      float4 v[8];
#pragma unroll
      for (int k = 0; k < 8; k++)
        if (start + k * 128 < cols) v[k] = __ldcs(reinterpret_cast<const float4*>(x + start + k * 128));
#pragma unroll
      for (int k = 0; k < 8; k++) {
        int c = start + k * 128;
        if (c >= cols) break;
        if (v[k].x > m || best > c) m = v[k].x, best = c;
        if (v[k].y > m) m = v[k].y, best = c + 1;
        if (v[k].z > m) m = v[k].z, best = c + 2;
        if (v[k].w > m) m = v[k].w, best = c + 3;
      }
    }
  } else {
    for (int c = lane; c < cols; c += 32)
      if (x[c] > m || best > c) m = x[c], best = c;
  }
  for (int s = 16; s > 0; s /= 2) {
    float other = __shfl_xor_sync(~0u, m, s);
    int at = __shfl_xor_sync(~0u, best, s);
    if (other > m || (other == m && at < best)) m = other, best = at;
  }
  if (lane == 0) out[r] = best;
}
