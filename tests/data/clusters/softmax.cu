#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// /// kernelmate
// sizes = [{ rows = 12, cols = 3000 }, { rows = 3, cols = 257 }]
// grid = ["2", "rows"]
// block = 256
// cluster = [2]
// reference = "reference.py:softmax"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///

// One cluster for each row; each block reads a slice and offers its partial results to the others.
__device__ float combined(cg::cluster_group cluster, float mine, float* partial, bool most) {
    __shared__ float warps[32];
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, mine, step);
        mine = most ? fmaxf(mine, other) : mine + other;
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < blockDim.x / 32; ++warp) mine = most ? fmaxf(mine, warps[warp]) : mine + warps[warp];
        *partial = mine;
    }
    cluster.sync();
    float all = *cluster.map_shared_rank(partial, 0);
    for (unsigned rank = 1; rank < cluster.num_blocks(); ++rank) {
        const float other = *cluster.map_shared_rank(partial, rank);
        all = most ? fmaxf(all, other) : all + other;
    }
    return all;
}

extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float greatest, total;
    cg::cluster_group cluster = cg::this_cluster();
    const size_t row = (size_t)blockIdx.y * cols;
    const int first = cluster.thread_rank(), step = cluster.num_threads();
    float most = -INFINITY;
    for (int col = first; col < cols; col += step) most = fmaxf(most, x[row + col]);
    most = combined(cluster, most, &greatest, true);
    float sum = 0.0f;
    for (int col = first; col < cols; col += step) sum += expf(x[row + col] - most);
    sum = combined(cluster, sum, &total, false);
    for (int col = first; col < cols; col += step) y[row + col] = expf(x[row + col] - most) / sum;
    cluster.sync();
}
