#include <cuda.h>
#include <cuda/ptx>

namespace ptx = cuda::ptx;

constexpr int SIDE = 32;

// The place of a float in a row of 128 bytes that is swizzled by 128 bytes.
__device__ int swizzled(int row, int column) {
  return ((column / 4) ^ (row % 8)) * 4 + column % 4;
}

// /// kernelmate
// sizes = [{ rows = 96, cols = 72 }, { rows = 40, cols = 128 }]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 32)"]
// block = 256
// reference = "x.T"
// [args]
// x = "in float32[rows, cols] box [32, 32] swizzle 128B"
// y = "out float32[cols, rows] box [32, 32] swizzle 128B"
// ///
__global__ void transpose(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap y) {
  __shared__ alignas(1024) float tile[SIDE][SIDE];
  __shared__ alignas(1024) float turned[SIDE][SIDE];
  __shared__ uint64_t full;
  const int thread = threadIdx.x;
  if (thread == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  const int across = blockIdx.x * SIDE, down = blockIdx.y * SIDE;
  if (thread == 0) {
    const int32_t from[2] = {across, down};
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof(tile));
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &x, from, &full);
  }
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {
  }
  for (int element = thread; element < SIDE * SIDE; element += blockDim.x) {
    const int row = element / SIDE, column = element % SIDE;
    turned[column][swizzled(column, row)] = tile[row][swizzled(row, column)];
  }
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (thread == 0) {
    const int32_t to[2] = {down, across};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &y, to, turned);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
  }
}
