// Signed bytes with 32-bit sums.

// /// kernelmate
// sizes = [{ tiles = 4 }]
// grid = "tiles"
// block = 32
// reference = "np.matmul(a, b, dtype=np.int64) + c"
// [args]
// a = "in int8[tiles, 16, 32] ~ integers(-128, 128)"
// b = "in int8[tiles, 32, 8] ~ integers(-128, 128)"
// c = "in int32[tiles, 16, 8] ~ integers(-100000, 100000)"
// d = "out int32[tiles, 16, 8]"
// tiles = "int32"
// ///
__global__ void mma_s8(const signed char* a, const signed char* b, const int* c, int* d, int tiles) {
  const int lane = threadIdx.x, group = lane / 4, within = lane % 4;
  a += blockIdx.x * 512, b += blockIdx.x * 256, c += blockIdx.x * 128, d += blockIdx.x * 128;
  unsigned x[4] = {0, 0, 0, 0}, y[2] = {0, 0};
  int z[4];
  for (int i = 0; i < 4; ++i) {
    for (int e = 0; e < 4; ++e) {
      const int row = group + (i % 2) * 8, col = within * 4 + e + (i / 2) * 16;
      x[i] |= static_cast<unsigned>(static_cast<unsigned char>(a[row * 32 + col])) << (8 * e);
    }
    z[i] = c[(group + (i / 2) * 8) * 8 + within * 2 + i % 2];
  }
  for (int i = 0; i < 2; ++i)
    for (int e = 0; e < 4; ++e)
      y[i] |= static_cast<unsigned>(static_cast<unsigned char>(b[(within * 4 + e + i * 16) * 8 + group])) << (8 * e);
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; ++i) d[(group + (i / 2) * 8) * 8 + within * 2 + i % 2] = z[i];
}
