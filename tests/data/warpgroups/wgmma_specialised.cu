// A matrix product by two warpgroups that multiply and one that copies: tiles go through three stages, mbarriers say which are full.
#include <cuda_bf16.h>

// /// kernelmate
// sizes = [{ m = 128, n = 64, k = 320 }, { m = 256, n = 32, k = 64 }]
// require = ["m % 128 == 0", "n % 32 == 0", "k % 64 == 0", "k > 0"]
// grid = ["m // 128", "n // 32"]
// block = 384
// shared = "3 * (128 + 32) * 128 + 48"
// reference = "a.astype(np.float64) @ b.astype(np.float64).T"
// [args]
// a = "in bfloat16[m, k] align 16 ~ normal"
// b = "in bfloat16[n, k] align 16 ~ normal"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
constexpr int kDepth = 64, kChunks = 8, kStages = 3, kRows = 128, kColumns = 32;
constexpr int kStage = (kRows + kColumns) * kChunks;

__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }

__device__ unsigned long long descriptor(const void* tile) {
  return static_cast<unsigned long long>((shared_address(tile) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ void await(unsigned long long* barrier, int parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra AGAIN;\n\t}" ::"r"(
          shared_address(barrier)),
      "r"(parity)
      : "memory");
}

__device__ void stage_rows(uint4* tile, const __nv_bfloat16* from, int rows, int stride) {
  for (int i = threadIdx.x % 128; i < rows * kChunks; i += 128) {
    const int row = i / kChunks, chunk = i % kChunks;
    tile[row * kChunks + (chunk ^ row % 8)] = *reinterpret_cast<const uint4*>(from + size_t(row) * stride + chunk * 8);
  }
}

__global__ void __launch_bounds__(384)
    wgmma_specialised(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  extern __shared__ __align__(1024) uint4 tiles[];
  unsigned long long* full = reinterpret_cast<unsigned long long*>(tiles + kStages * kStage);
  unsigned long long* empty = full + kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(shared_address(full + i)) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(shared_address(empty + i)) : "memory");
    }
  }
  __syncthreads();
  a += size_t(blockIdx.x) * kRows * k, b += size_t(blockIdx.y) * kColumns * k;
  const int group = threadIdx.x / 128;
  if (group == 2) {
    for (int step = 0; step < k / kDepth; ++step) {
      const int stage = step % kStages, round = step / kStages;
      if (round > 0) await(empty + stage, (round - 1) % 2);
      uint4* tile = tiles + stage * kStage;
      stage_rows(tile, a + step * kDepth, kRows, k);
      stage_rows(tile + kRows * kChunks, b + step * kDepth, kColumns, k);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      arrive(full + stage);
    }
    return;
  }
  float d[16] = {};
  for (int step = 0; step < k / kDepth; ++step) {
    const int stage = step % kStages, round = step / kStages;
    await(full + stage, round % 2);
    const uint4* tile = tiles + stage * kStage;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int part = 0; part < kDepth / 16; ++part) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
          "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
            "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
          : "l"(descriptor(tile + group * 64 * kChunks) + 2 * part), "l"(descriptor(tile + kRows * kChunks) + 2 * part));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The products of the step before are complete, so its stage may be filled again.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (step > 0 && threadIdx.x % 128 == 0) arrive(empty + (step - 1) % kStages);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 16; ++i) {
    const int row = group * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[(size_t(blockIdx.x) * kRows + row) * n + blockIdx.y * kColumns + column] = d[i];
  }
}
