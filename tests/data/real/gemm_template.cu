#include <algorithm>
#include <cassert>
#include <chrono>
#include <memory>
#include <string>
#include "include/check.cuh"

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

template <typename T, int BM, int BN, int BK>
__global__ void gemm(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M, int N, int K, T alpha, T beta)
{
    __shared__ T As[BM][BK + 1];
    __shared__ T Bs[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    assert(blockDim.x == BN && blockDim.y == BM);
    T acc = T(0);
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int k = tx; k < BK; k += BN) As[ty][k] = (row < M && k0 + k < K) ? A[row * K + k0 + k] : T(0);
        for (int k = ty; k < BK; k += BM) Bs[k][tx] = (col < N && k0 + k < K) ? B[(k0 + k) * N + col] : T(0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = alpha * acc + beta * C[row * N + col];
}

template <typename T>
void launch(const T* a, const T* b, T* c, int m, int n, int k)
{
    dim3 block(16, 16), grid(CEIL_DIV(n, 16), CEIL_DIV(m, 16));
    gemm<T, 16, 16, 16><<<grid, block>>>(a, b, c, m, n, k, T(1), T(0));
    CUDA_CHECK(cudaGetLastError());
}

int main()
{
    auto start = std::chrono::steady_clock::now();
    std::unique_ptr<float[]> host(new float[64 * 64]);
    float* device = nullptr;
    CUDA_CHECK(cudaMallocManaged(&device, 3 * 64 * 64 * sizeof(float)));
    std::fill(device, device + 3 * 64 * 64, 1.0f);
    launch<float>(device, device + 4096, device + 8192, 64, 64, 64);
    CUDA_CHECK(cudaDeviceSynchronize());
    std::string name = "gemm";
    auto spent = [&] { return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count(); };
    report(name.c_str(), spent());
}
