#include <cuda/ptx>

namespace ptx = cuda::ptx;

constexpr int TILE = 512, STAGES = 2;

// /// kernelmate
// sizes = [{ rows = 16, cols = 4096 }, { rows = 3, cols = 512 }]
// grid = "rows"
// block = 128
// require = ["cols % 512 == 0"]
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols] align 16"
// y = "out float32[rows]"
// cols = "int32"
// ///
__global__ void row_sums(const float* __restrict__ x, float* __restrict__ y, int cols) {
  __shared__ alignas(128) float tile[STAGES][TILE];
  __shared__ uint64_t full[STAGES];
  __shared__ float partial[4];
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int stage = 0; stage < STAGES; ++stage) ptx::mbarrier_init(&full[stage], 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  const float* row = x + static_cast<size_t>(blockIdx.x) * cols;
  const int tiles = cols / TILE;
  auto fetch = [&](int number) {
    uint64_t* bar = &full[number % STAGES];
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, sizeof(tile[0]));
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile[number % STAGES], row + number * TILE, sizeof(tile[0]), bar);
  };
  if (thread == 0)
    for (int number = 0; number < STAGES && number < tiles; ++number) fetch(number);
  float sum = 0;
  for (int number = 0; number < tiles; ++number) {
    const int stage = number % STAGES;
    while (!ptx::mbarrier_try_wait_parity(&full[stage], number / STAGES % 2)) {
    }
    for (int i = thread; i < TILE; i += blockDim.x) sum += tile[stage][i];
    __syncthreads();
    if (thread == 0 && number + STAGES < tiles) fetch(number + STAGES);
  }
  for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (thread % 32 == 0) partial[thread / 32] = sum;
  __syncthreads();
  if (thread == 0) y[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];
}
