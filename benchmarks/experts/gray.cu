// Luma of four pixels per thread: three words in, one word out.

__device__ unsigned luma(unsigned r, unsigned g, unsigned b) { return (77 * r + 150 * g + 29 * b + 128) >> 8; }

// /// kernelmate
// sizes = [{ n = 33554432 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 1024)"
// block = 256
// reference = "../naive/reference.py:gray"
// [args]
// rgb = "in uint8[n, 3]"
// out = "out uint8[n]"
// n = "int32"
// ///
__global__ void gray(const unsigned char* __restrict__ rgb, unsigned char* __restrict__ out, int n) {
  int i = (blockIdx.x * 256 + threadIdx.x) * 4;
  if (((size_t)rgb | (size_t)out) % 4 == 0 && i + 4 <= n) {
    const unsigned* p = reinterpret_cast<const unsigned*>(rgb + 3LL * i);
    unsigned a = p[0], b = p[1], c = p[2];
    unsigned y = luma(a & 255, a >> 8 & 255, a >> 16 & 255) | luma(a >> 24, b & 255, b >> 8 & 255) << 8 |
                 luma(b >> 16 & 255, b >> 24, c & 255) << 16 | luma(c >> 8 & 255, c >> 16 & 255, c >> 24) << 24;
    *reinterpret_cast<unsigned*>(out + i) = y;
  } else {
    for (int end = min(i + 4, n); i < end; i++) out[i] = luma(rgb[3LL * i], rgb[3LL * i + 1], rgb[3LL * i + 2]);
  }
}
