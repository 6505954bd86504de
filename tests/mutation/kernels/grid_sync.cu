// A cooperative launch: all blocks meet between writing and reading each other's values.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// cooperative = true
// [args]
// x = "in float32[n]"
// scratch = "inout float32[n] ~ zeros"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void grid_sync(const float* x, float* scratch, float* y, int n) {
  auto grid = cg::this_grid();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = x[i];
  grid.sync();
  const float mirrored = scratch[n - 1 - i];
  grid.sync();
  scratch[i] = mirrored;
  grid.sync();
  y[i] = scratch[(i + 1) % n];
}
