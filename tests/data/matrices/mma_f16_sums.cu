// Half sums as well: the result is rounded to half once for each instruction.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ tiles = 4 }]
// grid = "tiles"
// block = 32
// reference = "a @ b + c"
// accumulate = "float16"
// [args]
// a = "in float16[tiles, 16, 8]"
// b = "in float16[tiles, 8, 8]"
// c = "in float16[tiles, 16, 8]"
// d = "out float16[tiles, 16, 8]"
// tiles = "int32"
// ///
__global__ void mma_f16_sums(const __half* a, const __half* b, const __half* c, __half* d, int tiles) {
  const int lane = threadIdx.x, group = lane / 4, within = lane % 4;
  a += blockIdx.x * 128, b += blockIdx.x * 64, c += blockIdx.x * 128, d += blockIdx.x * 128;
  __half2 x[2], z[2];
  for (int i = 0; i < 2; ++i) {
    const int place = (group + i * 8) * 8 + within * 2;
    x[i] = __halves2half2(a[place], a[place + 1]);
    z[i] = __halves2half2(c[place], c[place + 1]);
  }
  const __half2 y = __halves2half2(b[within * 2 * 8 + group], b[(within * 2 + 1) * 8 + group]);
  const unsigned* p = reinterpret_cast<const unsigned*>(x);
  unsigned* r = reinterpret_cast<unsigned*>(z);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
               : "+r"(r[0]), "+r"(r[1])
               : "r"(p[0]), "r"(p[1]), "r"(*reinterpret_cast<const unsigned*>(&y)));
  for (int i = 0; i < 2; ++i) {
    d[(group + i * 8) * 8 + within * 2] = __low2half(z[i]);
    d[(group + i * 8) * 8 + within * 2 + 1] = __high2half(z[i]);
  }
}
