// A matrix product by warpgroups: bytes in shared memory in lines of 64 bytes, 32-bit integer sums.

// /// kernelmate
// sizes = [{ m = 128, n = 48, k = 128 }, { m = 64, n = 96, k = 64 }]
// require = ["m % 64 == 0", "n % 48 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 64", "n // 48"]
// block = 128
// reference = "a.astype(np.int32) @ b.astype(np.int32).T"
// [args]
// a = "in int8[m, k] align 16"
// b = "in int8[n, k] align 16"
// c = "out int32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
constexpr int kDepth = 64, kChunks = kDepth / 16;

__device__ unsigned long long descriptor(const void* tile) {
  const unsigned long long start = __cvta_generic_to_shared(tile);
  return (start & 0x3FFFF) >> 4 | 1ull << 16 | 512ull >> 4 << 32 | 2ull << 62;
}

// The swizzle of 64 bytes adds bits 7 and 8 of an address to bits 4 and 5: two rows share their value.
__device__ void stage(uint4* tile, const signed char* from, int rows, int stride) {
  for (int i = threadIdx.x; i < rows * kChunks; i += blockDim.x) {
    const int row = i / kChunks, chunk = i % kChunks;
    tile[row * kChunks + (chunk ^ row / 2 % 4)] = *reinterpret_cast<const uint4*>(from + size_t(row) * stride + chunk * 16);
  }
}

__global__ void __launch_bounds__(128)
    wgmma_s8(const signed char* a, const signed char* b, int* c, int m, int n, int k) {
  __shared__ __align__(1024) uint4 left[64 * kChunks], right[48 * kChunks];
  a += size_t(blockIdx.x) * 64 * k, b += size_t(blockIdx.y) * 48 * k;
  int d[24] = {};
  for (int start = 0; start < k; start += kDepth) {
    stage(left, a + start, 64, k), stage(right, b + start, 48, k);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kDepth / 32; ++step) {
      const int keep = start + step > 0;
      asm volatile(
          "{\n\t.reg .pred keep;\n\tsetp.ne.s32 keep, %26, 0;\n\t"
          "wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.s8 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
          "%24, %25, keep;\n\t}"
          : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]),
            "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]),
            "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23])
          : "l"(descriptor(left) + 2 * step), "l"(descriptor(right) + 2 * step), "r"(keep));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 24; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[(size_t(blockIdx.x) * 64 + row) * n + blockIdx.y * 48 + column] = d[i];
  }
}
