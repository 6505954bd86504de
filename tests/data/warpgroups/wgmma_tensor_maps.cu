// A matrix product by warpgroups whose tiles are brought by tensor maps, with the swizzle that the descriptors name.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_fp16.h>

namespace ptx = cuda::ptx;

// /// kernelmate
// sizes = [{ m = 128, n = 64, k = 192 }, { m = 64, n = 32, k = 64 }]
// require = ["m % 64 == 0", "n % 32 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 64", "n // 32"]
// block = 128
// reference = "a.astype(np.float64) @ b.astype(np.float64).T"
// [args]
// a = "in float16[m, k] box [64, 64] swizzle 128B"
// b = "in float16[n, k] box [32, 64] swizzle 128B"
// c = "out float32[m, n]"
// n = "int32"
// k = "int32"
// ///
constexpr int kDepth = 64;

__device__ unsigned long long descriptor(const void* tile) {
  const unsigned long long start = __cvta_generic_to_shared(tile);
  return (start & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

__global__ void __launch_bounds__(128) wgmma_tensor_maps(const __grid_constant__ CUtensorMap a,
                                                         const __grid_constant__ CUtensorMap b, float* c, int n, int k) {
  __shared__ __align__(1024) __half left[64 * kDepth], right[32 * kDepth];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  float d[16] = {};
  for (int step = 0; step < k / kDepth; ++step) {
    if (threadIdx.x == 0) {
      const int32_t rows[2] = {step * kDepth, int(blockIdx.x) * 64}, columns[2] = {step * kDepth, int(blockIdx.y) * 32};
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof(left) + sizeof(right));
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, left, &a, rows, &full);
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, right, &b, columns, &full);
    }
    while (!ptx::mbarrier_try_wait_parity(&full, step % 2)) {
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int part = 0; part < kDepth / 16; ++part) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
            "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
          : "l"(descriptor(left) + 2 * part), "l"(descriptor(right) + 2 * part));
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
