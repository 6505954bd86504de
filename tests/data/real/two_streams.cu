#include <array>
#include <functional>
#include <thread>
#include <cub/block/block_reduce.cuh>
#include "include/check.cuh"

using Reduce = cub::BlockReduce<float, 128>;

__global__ void block_max(const float* in, float* out, int n)
{
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * 128 + threadIdx.x;
    float value = i < n ? in[i] : -3.4e38f;
    float best = value;
    best = Reduce(storage).Reduce(value, [] __device__(float a, float b) { return a > b ? a : b; });
    if (threadIdx.x == 0) out[blockIdx.x] = best;
}

std::array<cudaStream_t, 2> streams;

static void worker(int which, const float* in, float* out, int n)
{
    block_max<<<(n + 127) / 128, 128, 0, streams[which]>>>(in, out, n);
    CUDA_CHECK(cudaStreamSynchronize(streams[which]));
}

int main()
{
    float *in, *out;
    CUDA_CHECK(cudaMalloc(&in, 1 << 22));
    CUDA_CHECK(cudaMalloc(&out, 1 << 16));
    for (auto& stream : streams) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::thread first(worker, 0, in, out, 1 << 20);
    std::thread second(std::bind(worker, 1, in, out + 8192, 1 << 20));
    first.join();
    second.join();
    return 0;
}
