// Bilinear resize, HWC, corners aligned to pixel centres, clamped at the border.

struct Size { int h, w; };

__device__ __forceinline__ int clampi(int v, int hi) { return v < 0 ? 0 : (v > hi ? hi : v); }

// /// kernelmate
// sizes = [{ sh = 96, sw = 128, dh = 144, dw = 160 }, { sh = 17, sw = 9, dh = 8, dw = 21 }, { sh = 1, sw = 1, dh = 1, dw = 1 }]
// grid = ["cdiv(dh, block_x)", "cdiv(dw, block_y)"]
// block = [16, 8]
// require = ["sh > 0", "sw > 0", "dh > 0", "dw > 0"]
// reference = "reference.py:bilinear"
// tolerance = { rtol = 1e-3, atol = 1e-3 }
// [args]
// src = "in float32[sh, sw, 3] ~ uniform(0, 1)"
// dst = "out float32[dh, dw, 3]"
// sh = "int32"
// sw = "int32"
// dh = "int32"
// dw = "int32"
// ///
__global__ void resizeBilinear(const float* src, float* dst, int sh, int sw, int dh, int dw) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= dh || col >= dw) return;
  const float fy = (row + 0.5f) * sh / dh - 0.5f;
  const float fx = (col + 0.5f) * sw / dw - 0.5f;
  const int y0 = (int)floorf(fy), x0 = (int)floorf(fx);
  const float ty = fy - y0, tx = fx - x0;
  const int ya = clampi(y0, sh - 1), yb = clampi(y0 + 1, sh - 1);
  const int xa = clampi(x0, sw - 1), xb = clampi(x0 + 1, sw - 1);
  for (int ch = 0; ch < 3; ++ch) {
    const float top = src[(ya * sw + xa) * 3 + ch] * (1.0f - tx) + src[(ya * sw + xb) * 3 + ch] * tx;
    const float bottom = src[(yb * sw + xa) * 3 + ch] * (1.0f - tx) + src[(yb * sw + xb) * 3 + ch] * tx;
    dst[(row * dw + col) * 3 + ch] = top * (1.0f - ty) + bottom * ty;
  }
}
