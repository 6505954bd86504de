// The same product with bfloat16 operands.
#include <cuda_bf16.h>

// /// kernelmate
// sizes = [{ tiles = 4 }]
// grid = "tiles"
// block = 32
// reference = "a @ b + c"
// [args]
// a = "in bfloat16[tiles, 16, 16]"
// b = "in bfloat16[tiles, 16, 8]"
// c = "in float32[tiles, 16, 8]"
// d = "out float32[tiles, 16, 8]"
// tiles = "int32"
// ///
__global__ void mma_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* c, float* d, int tiles) {
  const int lane = threadIdx.x, group = lane / 4, within = lane % 4;
  a += blockIdx.x * 256, b += blockIdx.x * 128, c += blockIdx.x * 128, d += blockIdx.x * 128;
  __nv_bfloat162 x[4], y[2];
  float z[4];
  for (int i = 0; i < 4; ++i) {
    const int row = group + (i % 2) * 8, col = within * 2 + (i / 2) * 8;
    x[i] = __halves2bfloat162(a[row * 16 + col], a[row * 16 + col + 1]);
    z[i] = c[(group + (i / 2) * 8) * 8 + within * 2 + i % 2];
  }
  for (int i = 0; i < 2; ++i) {
    const int row = within * 2 + i * 8;
    y[i] = __halves2bfloat162(b[row * 8 + group], b[(row + 1) * 8 + group]);
  }
  const unsigned* p = reinterpret_cast<const unsigned*>(x);
  const unsigned* q = reinterpret_cast<const unsigned*>(y);
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
  for (int i = 0; i < 4; ++i) d[(group + (i / 2) * 8) * 8 + within * 2 + i % 2] = z[i];
}
