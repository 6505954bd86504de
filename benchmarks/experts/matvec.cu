// A warp per row with eight 16-byte loads of the row in flight and a sum for each of four.

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
  float sum = 0.0f;
  if (cols % 4 == 0 && ((size_t)a | (size_t)x) % 16 == 0) {
    float part[4] = {};
    for (int start = lane * 4; start < cols; start += 1024) {
      float4 p[8];
#pragma unroll
      for (int k = 0; k < 8; k++) {
        int c = start + k * 128;
        p[k] = c < cols ? __ldcs(reinterpret_cast<const float4*>(a + c)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
#pragma unroll
      for (int k = 0; k < 8; k++) {
        if (start + k * 128 >= cols) break;
        float4 q = *reinterpret_cast<const float4*>(x + start + k * 128);
        part[k % 4] += p[k].x * q.x + p[k].y * q.y + p[k].z * q.z + p[k].w * q.w;
      }
    }
    sum = part[0] + part[1] + (part[2] + part[3]);
  } else {
    for (int c = lane; c < cols; c += 32) sum += a[c] * x[c];
  }
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) y[r] = sum;
}
