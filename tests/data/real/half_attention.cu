#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <vector>
#include <cstdint>
#include <cfloat>

namespace cg = cooperative_groups;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "needs Volta or newer"
#endif

template <int D>
__global__ void scores(const __half* __restrict__ q, const __half* __restrict__ k, float* __restrict__ out, int32_t keys, float scale)
{
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int key = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (key >= keys) return;
    float dot = 0.f;
    for (int d = warp.thread_rank(); d < D; d += 32) dot += __half2float(q[d]) * __half2float(k[(int64_t)key * D + d]);
    dot = cg::reduce(warp, dot, cg::plus<float>());
    if (warp.thread_rank() == 0) out[key] = dot > -FLT_MAX ? dot * scale : -INFINITY;
}

template __global__ void scores<64>(const __half*, const __half*, float*, int32_t, float);

static std::vector<__half> load(uint64_t n) { return std::vector<__half>(n, __float2half(0.5f)); }

int main()
{
    auto q = load(64), k = load(64 * 1000);
    __half *dq, *dk;
    float* out;
    cudaMalloc(&dq, q.size() * 2); cudaMalloc(&dk, k.size() * 2); cudaMalloc(&out, 4000);
    scores<64><<<(1000 + 3) / 4, 128>>>(dq, dk, out, 1000, 0.125f);
    return cudaDeviceSynchronize();
}
