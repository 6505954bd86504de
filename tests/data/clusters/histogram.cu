#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// /// kernelmate
// sizes = [{ n = 20000, bins = 1024 }, { n = 777, bins = 512 }]
// require = ["bins % 4 == 0", "bins >= 4"]
// grid = "4 * min(cdiv(n, 4 * block), 4)"
// block = 128
// shared = "bins // 4 * 4"
// reference = "reference.py:histogram"
// [args]
// x = "in int32[n] ~ integers(0, bins)"
// counts = "inout int32[bins] ~ zeros"
// n = "int32"
// bins = "int32"
// ///
extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const int* __restrict__ x, int* counts, int n, int bins) {
    extern __shared__ int part[];
    cg::cluster_group cluster = cg::this_cluster();
    const int each = bins / cluster.num_blocks();
    for (int i = threadIdx.x; i < each; i += blockDim.x) part[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int bin = x[i];
        atomicAdd(cluster.map_shared_rank(part, bin / each) + bin % each, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < each; i += blockDim.x) {
        if (part[i]) atomicAdd(&counts[cluster.block_rank() * each + i], part[i]);
    }
}
