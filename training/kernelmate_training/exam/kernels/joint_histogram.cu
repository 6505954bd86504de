// Joint histogram of two registered scans, 16 x 16 cells: what mutual information is computed from.
#define CELLS 16

// /// kernelmate
// sizes = [{ voxels = 48000 }, { voxels = 1777 }, { voxels = 1 }]
// grid = "cdiv(voxels, block)"
// block = 256
// reference = "reference.py:joint_histogram"
// [args]
// fixed = "in float32[voxels] ~ uniform(0, 1)"
// moving = "in float32[voxels] ~ uniform(0, 1)"
// table = "inout uint32[16, 16] ~ zeros"
// voxels = "int32"
// ///
__global__ void jointHistogram(const float* fixed, const float* moving, unsigned int* table, int voxels)
{
  int v = blockDim.x * blockIdx.x + threadIdx.x;
  if (v >= voxels) return;
  int a = min(CELLS - 1, max(0, (int)(fixed[v] * CELLS)));
  int b = min(CELLS - 1, max(0, (int)(moving[v] * CELLS)));
  atomicAdd(table + a * CELLS + b, 1u);
}
