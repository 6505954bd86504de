// A matrix product by warpgroups whose left operand comes in registers: bfloat16 operands, float sums, two tiles in turn, one
// product in flight while the next tile is copied.
#include <cuda_bf16.h>

// /// kernelmate
// sizes = [{ m = 128, n = 32, k = 192 }, { m = 64, n = 64, k = 64 }]
// require = ["m % 64 == 0", "n % 32 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 64", "n // 32"]
// block = 128
// reference = "a.astype(np.float64) @ b.astype(np.float64).T"
// [args]
// a = "in bfloat16[m, k] align 16 ~ normal"
// b = "in bfloat16[n, k] align 16 ~ normal"
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

__device__ void copy_tile(uint4* tile, const __nv_bfloat16* from, int stride) {
  for (int i = threadIdx.x; i < 32 * kChunks; i += blockDim.x) {
    const int row = i / kChunks, chunk = i % kChunks;
    const unsigned to = __cvta_generic_to_shared(tile + row * kChunks + (chunk ^ row % 8));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + size_t(row) * stride + chunk * 8) : "memory");
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__global__ void __launch_bounds__(128)
    wgmma_bf16_registers(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  __shared__ __align__(1024) uint4 tile[2][32 * kChunks];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  a += size_t(blockIdx.x) * 64 * k, b += size_t(blockIdx.y) * 32 * k;
  float d[16] = {};
  copy_tile(tile[0], b, k);
  for (int start = 0; start < k; start += kDepth) {
    const int now = start / kDepth % 2;
    unsigned x[kDepth / 16][4];
    for (int step = 0; step < kDepth / 16; ++step) {
      for (int i = 0; i < 4; ++i) {
        const int row = warp * 16 + lane / 4 + i % 2 * 8, column = start + step * 16 + i / 2 * 8 + lane % 4 * 2;
        x[step][i] = *reinterpret_cast<const unsigned*>(a + size_t(row) * k + column);
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
            "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
          : "r"(x[step][0]), "r"(x[step][1]), "r"(x[step][2]), "r"(x[step][3]), "l"(descriptor(tile[now]) + 2 * step));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The other tile was read by products that were waited for before the barrier.
    if (start + kDepth < k) copy_tile(tile[1 - now], b + start + kDepth, k);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  for (int i = 0; i < 16; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[(size_t(blockIdx.x) * 64 + row) * n + blockIdx.y * 32 + column] = d[i];
  }
}
