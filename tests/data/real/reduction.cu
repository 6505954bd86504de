#include <iostream>
#include <numeric>
#include <vector>
#include "include/reduce.cuh"

namespace demo {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sum(const float* __restrict__ in, float* __restrict__ out, size_t n)
{
    __shared__ float partial[kThreads / 32];
    float value = 0.0f;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) value += in[i];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < kThreads / 32 ? partial[threadIdx.x] : 0.0f;
        value = warp_sum(value);
        if (threadIdx.x == 0) atomicAdd(out, value);
    }
}

class Timer {
public:
    Timer() { CUDA_CHECK(cudaEventCreate(&start_)); CUDA_CHECK(cudaEventCreate(&stop_)); }
    void begin(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(start_, stream)); }
    float end(cudaStream_t stream)
    {
        float ms = 0;
        CUDA_CHECK(cudaEventRecord(stop_, stream));
        CUDA_CHECK(cudaEventSynchronize(stop_));
        CUDA_CHECK(cudaEventElapsedTime(&ms, start_, stop_));
        return ms;
    }
private:
    cudaEvent_t start_, stop_;
};

}  // namespace demo

int main(int argc, char** argv)
{
    std::vector<float> values(1 << 20);
    std::iota(values.begin(), values.end(), 0.0f);
    float *in = nullptr, *out = nullptr;
    CUDA_CHECK(cudaMalloc(&in, values.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&out, sizeof(float)));
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreate(&stream));
    demo::Timer timer;
    timer.begin(stream);
    demo::sum<<<1024, demo::kThreads, 0, stream>>>(in, out, values.size());
    report("sum", timer.end(stream));
    std::cout << host_sum(values.data(), (int)values.size()) << std::endl;
    return argc > 99 ? 1 : 0;
}
