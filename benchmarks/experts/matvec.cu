// A warp per row with eight 16-byte loads in flight.

// /// kernelmate
// sizes = [{ rows = 8192, cols = 4096 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 8)"
// block = 256
// reference = "../naive/reference.py:matvec"
// [args]
// a = "in float32[rows, cols]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void matvec(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int rows,
                       int cols) {
  int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  a += (size_t)r * cols;
  float s = 0.0f;
  if (cols % 4 == 0 && ((size_t)a | (size_t)x) % 16 == 0) {
#pragma unroll 8
    for (int c = lane * 4; c < cols; c += 128) {
      float4 p = __ldcs(reinterpret_cast<const float4*>(a + c)), q = *reinterpret_cast<const float4*>(x + c);
      s += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
    }
  } else {
    for (int c = lane; c < cols; c += 32) s += a[c] * x[c];
  }
  for (int o = 16; o > 0; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  if (lane == 0) y[r] = s;
}
