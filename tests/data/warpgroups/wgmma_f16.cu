// A matrix product by warpgroups: half operands in shared memory, rows of 128 bytes swizzled as the descriptors say, float sums.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ m = 128, n = 64, k = 192 }, { m = 64, n = 32, k = 64 }]
// require = ["m % 64 == 0", "n % 32 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 64", "n // 32"]
// block = 128
// reference = "a.astype(np.float64) @ b.astype(np.float64).T"
// [args]
// a = "in float16[m, k] align 16"
// b = "in float16[n, k] align 16"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
constexpr int kDepth = 64, kChunks = kDepth / 8;

__device__ unsigned long long descriptor(const void* tile) {
  const unsigned long long start = __cvta_generic_to_shared(tile);
  return (start & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

// Copies rows of 64 halves; chunk c of row r goes to place c ^ (r % 8), which is the swizzle of 128 bytes.
__device__ void stage(uint4* tile, const __half* from, int rows, int stride) {
  for (int i = threadIdx.x; i < rows * kChunks; i += blockDim.x) {
    const int row = i / kChunks, chunk = i % kChunks;
    tile[row * kChunks + (chunk ^ row % 8)] = *reinterpret_cast<const uint4*>(from + size_t(row) * stride + chunk * 8);
  }
}

__global__ void __launch_bounds__(128) wgmma_f16(const __half* a, const __half* b, float* c, int m, int n, int k) {
  __shared__ __align__(1024) uint4 left[64 * kChunks], right[32 * kChunks];
  a += size_t(blockIdx.x) * 64 * k, b += size_t(blockIdx.y) * 32 * k;
  float d[16] = {};
  for (int start = 0; start < k; start += kDepth) {
    stage(left, a + start, 64, k), stage(right, b + start, 32, k);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kDepth / 16; ++step) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
            "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
          : "l"(descriptor(left) + 2 * step), "l"(descriptor(right) + 2 * step));
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 16; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[(size_t(blockIdx.x) * 64 + row) * n + blockIdx.y * 32 + column] = d[i];
  }
}
