// Float operands of which tensor cores look at 19 bits.

// /// kernelmate
// sizes = [{ tiles = 4 }]
// grid = "tiles"
// block = 32
// reference = "a @ b + c"
// tolerance = { rtol = 1e-2, atol = 1e-2 }
// [args]
// a = "in float32[tiles, 16, 8] ~ uniform(-1, 1)"
// b = "in float32[tiles, 8, 8] ~ uniform(-1, 1)"
// c = "in float32[tiles, 16, 8] ~ uniform(-1, 1)"
// d = "out float32[tiles, 16, 8]"
// tiles = "int32"
// ///
__global__ void mma_tf32(const float* a, const float* b, const float* c, float* d, int tiles) {
  const int lane = threadIdx.x, group = lane / 4, within = lane % 4;
  a += blockIdx.x * 128, b += blockIdx.x * 64, c += blockIdx.x * 128, d += blockIdx.x * 128;
  unsigned x[4], y[2];
  float z[4];
  for (int i = 0; i < 4; ++i) {
    x[i] = __float_as_uint(a[(group + (i % 2) * 8) * 8 + within + (i / 2) * 4]);
    z[i] = c[(group + (i / 2) * 8) * 8 + within * 2 + i % 2];
  }
  for (int i = 0; i < 2; ++i) y[i] = __float_as_uint(b[(within + i * 4) * 8 + group]);
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  for (int i = 0; i < 4; ++i) d[(group + (i / 2) * 8) * 8 + within * 2 + i % 2] = z[i];
}
