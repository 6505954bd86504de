// A matrix product by warpgroups whose right operand has rows of adjacent columns (MN-major), which wgmma transposes: half
// operands, half sums, two warpgroups that share the right tile.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ m = 128, n = 64, k = 128 }, { m = 256, n = 128, k = 64 }]
// require = ["m % 128 == 0", "n % 64 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 128", "n // 64"]
// block = 256
// shared = "(128 + 64) * 128"
// reference = "a.astype(np.float64) @ b.astype(np.float64)"
// accumulate = "float16"
// [args]
// a = "in float16[m, k] align 16 ~ normal"
// b = "in float16[k, n] align 16 ~ normal"
// c = "out float16[m, n] align 4"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
constexpr int kDepth = 64, kChunks = 8;
constexpr unsigned long long kSwizzled = 1ull << 62;

__device__ unsigned long long start_of(const void* tile) {
  return (static_cast<unsigned long long>(__cvta_generic_to_shared(tile)) & 0x3FFFF) >> 4;
}

// Copies rows of 64 halves; a row of a tile is a line of the swizzle, whether it is one of A or one of B.
__device__ void stage(uint4* tile, const __half* from, int rows, int stride) {
  for (int i = threadIdx.x; i < rows * kChunks; i += blockDim.x) {
    const int row = i / kChunks, chunk = i % kChunks;
    tile[row * kChunks + (chunk ^ row % 8)] = *reinterpret_cast<const uint4*>(from + size_t(row) * stride + chunk * 8);
  }
}

__global__ void __launch_bounds__(256)
    wgmma_f16_transposed(const __half* a, const __half* b, __half* c, int m, int n, int k) {
  extern __shared__ __align__(1024) uint4 tiles[];
  uint4 *left = tiles, *right = tiles + 128 * kChunks;
  const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  a += size_t(blockIdx.x) * 128 * k, b += blockIdx.y * 64;
  unsigned d[16] = {};
  for (int start = 0; start < k; start += kDepth) {
    stage(left, a + start, 128, k), stage(right, b + size_t(start) * n, kDepth, n);
    __syncthreads();
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    const unsigned long long x = start_of(left + group * 64 * kChunks) | 1ull << 16 | 64ull << 32 | kSwizzled;
    const unsigned long long y = start_of(right) | 1ull << 16 | 64ull << 32 | kSwizzled;
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 1;"
          : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
            "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
          : "l"(x + 2 * step), "l"(y + 128 * step));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  for (int i = 0; i < 16; ++i) {
    const int row = group * 64 + warp * 16 + lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
    *reinterpret_cast<unsigned*>(c + (size_t(blockIdx.x) * 128 + row) * n + blockIdx.y * 64 + column) = d[i];
  }
}
