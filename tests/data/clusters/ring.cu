#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/ptx>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

// /// kernelmate
// sizes = [{ clusters = 20 }, { clusters = 3 }]
// grid = "4 * clusters"
// block = 64
// reference = "reference.py:ring"
// [args]
// x = "in int32[clusters, 4, 64] ~ integers(-1000, 1000)"
// y = "out int32[clusters, 4, 64]"
// total = "out int32[clusters]"
// ///

// Each block hands its tile to the next one of its cluster, which an mbarrier tells when the tile is there.
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(const int* __restrict__ x, int* __restrict__ y, int* __restrict__ total) {
    __shared__ int tile[64], sum;
    __shared__ uint64_t full;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x;
    const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (t == 0) {
        ptx::mbarrier_init(&full, 64);
        sum = 0;
    }
    cluster.sync();
    cluster.map_shared_rank(tile, next)[t] = x[blockIdx.x * 64 + t];
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, cluster.map_shared_rank(&full, next));
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, 0)) {
    }
    y[blockIdx.x * 64 + t] = tile[63 - t];
    cuda::atomic_ref<int, cuda::thread_scope_device> all(*cluster.map_shared_rank(&sum, 0));
    all.fetch_add(tile[t], cuda::memory_order_relaxed);
    cluster.sync();
    if (t == 0 && cluster.block_rank() == 0) total[blockIdx.x / 4] = sum;
}
