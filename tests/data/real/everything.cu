// Everything at once: macros that make kernels, CUB, Thrust, functors, lambdas, host and device members side by side.
#include <cstdio>
#include <vector>
#include <algorithm>
#include <type_traits>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/transform.h>
#include "helper_cuda.h"
namespace cg = cooperative_groups;
using namespace std;
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif
#define CUDA_CHECK(call)                                                 \
    do {                                                                 \
        cudaError_t e = (call);                                          \
        if (e != cudaSuccess) {                                          \
            std::cerr << cudaGetErrorString(e) << std::endl; exit(1);    \
        }                                                                \
    } while (0)
#define WARP 32
#define KERNEL_NAME(op) op##_kernel
#define DEFINE_UNARY(op, expr)                                          \
    __global__ void op##_kernel(const float* x, float* y, int n) {      \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                  \
        if (i < n) { float v = x[i]; y[i] = expr; }                     \
    }
DEFINE_UNARY(relu, v > 0 ? v : 0)
DEFINE_UNARY(silu, v / (1 + expf(-v)))

struct Timer {
    cudaEvent_t start, stop;
    std::chrono::time_point<std::chrono::steady_clock> t0;
    Timer() { cudaEventCreate(&start); }
    ~Timer() { cudaEventDestroy(start); }
};
struct saxpy_functor : public thrust::binary_function<float, float, float> {
    const float a;
    saxpy_functor(float _a) : a(_a) {}
    __host__ __device__ float operator()(const float& x, const float& y) const { return a * x + y; }
};
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
    T v[N];
    Pack() = default;
    explicit Pack(const std::vector<T>& s) { for (int i = 0; i < N; ++i) v[i] = s[i]; }
    __device__ __forceinline__ T& operator[](int i) { return v[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
    std::string describe() const { return "pack"; }
    static constexpr int size = N;
    constexpr int bytes() const { return N * sizeof(T); }
};
enum Activation { kRelu, kGelu };
struct Params { int n; float alpha; Activation act; void validate() const { if (n < 0) throw std::runtime_error("n"); } };
static const int kThreads = 256;
const int kHostThreads = std::thread::hardware_concurrency();
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
static std::vector<float> g_results;
static Params g_params{1, 2.f, kRelu};
bool g_verbose = false;
__device__ __managed__ int g_errors = 0;
__constant__ float c_table[ceil_div(100, 32)];

template <typename T> __device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
    for (int o = WARP / 2; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    return v;
}
template <typename T, int N, typename = enable_if_t<is_floating_point<T>::value>>
__global__ void __launch_bounds__(kThreads) fused(const T* __restrict__ x, T* __restrict__ y, Params p) {
    cg::thread_block block = cg::this_thread_block();
    typedef cub::BlockReduce<T, kThreads> Reduce;
    __shared__ typename Reduce::TempStorage tmp;
    Pack<T, N> pack;
    auto act = [=] __device__ (T v) { return p.act == kRelu ? max(v, T(0)) : v; };
    T s = 0;
    for (int i = block.thread_rank(); i < p.n; i += kThreads) s += act(x[i]) + c_table[i % 4] + pack.bytes();
    s = Reduce(tmp).Sum(s);
    if constexpr (is_same_v<T, float>) { if (s != s) atomicAdd(&g_errors, 1); }
    if (threadIdx.x == 0) { y[blockIdx.x] = warp_sum(s) * p.alpha + std::numeric_limits<T>::epsilon(); printf("%f\n", (double)s); assert(s == s); }
}
template __global__ void fused<float, 4>(const float*, float*, Params);
EXPORT void run(const std::vector<float>& in, std::vector<float>& out) try {
    Timer t;
    float *d; CUDA_CHECK(cudaMalloc(&d, in.size() * sizeof(float)));
    dim3 grid(ceil_div(in.size(), kThreads));
    fused<float, 4><<<grid, kThreads>>>(d, d, g_params);
    KERNEL_NAME(relu)<<<1, 2>>>(d, d, 3);
    thrust::transform(in.begin(), in.end(), out.begin(), out.begin(), saxpy_functor(2.f));
    auto f = [&](int i) { return out[i]; };
#ifdef DEBUG
    if (g_verbose) { printf("x"); }
#else
    if (!g_verbose) {
#endif
    }
} catch (const std::exception& e) { fprintf(stderr, "%s", e.what()); }
int main(int argc, char** argv) {
    std::vector<float> a(100), b(100);
    run(a, b);
    for (const auto& v : b) std::cout << v << "\n";
    return 0;
}
