// Cooperative groups: a block that meets, and tiles of eight lanes that do.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void groups(const float* x, float* y, int n) {
  __shared__ float row[128];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  tile.sync();
  const float mate = row[threadIdx.x ^ 7];
  block.sync();
  row[127 - threadIdx.x] = mate;
  block.sync();
  y[i] = row[threadIdx.x] + tile.shfl(mate, 0);
}
