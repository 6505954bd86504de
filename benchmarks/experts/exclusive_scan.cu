// A warp per row, 1024 columns at a time: eight 16-byte loads in flight, then eight scans by shuffles side by side.

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows, 8)"
// block = 256
// reference = "../naive/reference.py:exclusive_scan"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void __launch_bounds__(256, 4)
exclusive_scan(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  x += (size_t)r * cols;
  out += (size_t)r * cols;
  float before = 0.0f;
  bool wide = cols % 4 == 0 && ((size_t)x | (size_t)out) % 16 == 0;
  for (int start = 0; start < cols; start += 1024) {
    float4 v[8];
    float upto[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int c = start + k * 128 + lane * 4;
      v[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (wide && c < cols) {
        v[k] = __ldcs(reinterpret_cast<const float4*>(x + c));
      } else if (!wide) {
        if (c < cols) v[k].x = x[c];
        if (c + 1 < cols) v[k].y = x[c + 1];
        if (c + 2 < cols) v[k].z = x[c + 2];
        if (c + 3 < cols) v[k].w = x[c + 3];
      }
    }
#pragma unroll
    for (int k = 0; k < 8; k++) upto[k] = v[k].x + v[k].y + v[k].z + v[k].w;
#pragma unroll
    for (int s = 1; s < 32; s *= 2)
#pragma unroll
      for (int k = 0; k < 8; k++) {
        float o = __shfl_up_sync(~0u, upto[k], s);
        if (lane >= s) upto[k] += o;
      }
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int c = start + k * 128 + lane * 4;
      float left = __shfl_up_sync(~0u, upto[k], 1);
      float a = before + (lane ? left : 0.0f), b = a + v[k].x, d = b + v[k].y, e = d + v[k].z;
      before += __shfl_sync(~0u, upto[k], 31);
      if (wide && c < cols) {
        __stcs(reinterpret_cast<float4*>(out + c), make_float4(a, b, d, e));
      } else if (!wide) {
        if (c < cols) out[c] = a;
        if (c + 1 < cols) out[c + 1] = b;
        if (c + 2 < cols) out[c + 2] = d;
        if (c + 3 < cols) out[c + 3] = e;
      }
    }
  }
}
