// Kernels that reach one limit of a GPU each. Results are written only where a value comes out that never does, so that
// nothing is optimised away and nothing is stored.

#define NEVER 1.2345e33f

// Loads that the compiler may neither join nor move: through L2 only, and through L1.
__device__ __forceinline__ float4 load_l2(const float4* p)
{
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ float4 load_l1(const float4* p)
{
    float4 v;
    asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

extern "C" __global__ void nothing() {}

// n float4 are read once each.
extern "C" __global__ void read_once(const float4* in, float* out, long long n)
{
    long long step = (long long)gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
        float4 v[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = i + k * step < n ? in[i + k * step] : make_float4(0, 0, 0, 0);
        #pragma unroll
        for (int k = 0; k < 4; ++k) sum += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    if (sum == NEVER) out[threadIdx.x] = sum;
}

// n float4 are read and written once each.
extern "C" __global__ void copy_once(const float4* in, float4* out, long long n)
{
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i];
}

// Every thread reads 8 * rounds float4 of a buffer of n, a power of two; past L1.
extern "C" __global__ void read_l2(const float4* in, float* out, int n, int rounds)
{
    int step = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int k = 0; k < 8; ++k) {
            float4 v = load_l2(in + (i & (n - 1)));
            sum += v.x + v.y + v.z + v.w;
            i += step;
        }
    }
    if (sum == NEVER) out[threadIdx.x] = sum;
}

// Every thread reads 8 * rounds float4 of a buffer of n, a power of two, which each L1 holds.
extern "C" __global__ void read_l1(const float4* in, float* out, int n, int rounds)
{
    int i = threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int k = 0; k < 8; ++k) {
            float4 v = load_l1(in + (i & (n - 1)));
            sum += v.x + v.y + v.z + v.w;
            i += blockDim.x;
        }
    }
    if (sum == NEVER) out[threadIdx.x] = sum;
}

// Every thread does 8 * 16 * rounds multiply-adds in 8 independent chains.
template <typename T> __device__ void chains(T* out, int rounds, T a, T b)
{
    T x[8];
    #pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = (T)(threadIdx.x + j);
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int k = 0; k < 16; ++k) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) x[j] = x[j] * a + b;
        }
    }
    T sum = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
    if (sum == (T)NEVER) out[threadIdx.x] = sum;
}

extern "C" __global__ void fma_fp32(float* out, int rounds, float a, float b) { chains(out, rounds, a, b); }

extern "C" __global__ void fma_fp64(double* out, int rounds, double a, double b) { chains(out, rounds, a, b); }

// As above with two halves in each of 8 chains.
extern "C" __global__ void fma_fp16(unsigned* out, int rounds, unsigned a, unsigned b)
{
    unsigned x[8];
    #pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = threadIdx.x + j;
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int k = 0; k < 16; ++k) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x[j]) : "r"(a), "r"(b));
        }
    }
    unsigned all = x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
    if (all == 0x12345678u) out[threadIdx.x] = all;
}

// Every warp does 4 * 4 * rounds products of 16 x 8 x 16 halves with sums in float (of 16 x 8 x 8 before sm_80).
extern "C" __global__ void mma_fp16(float* out, int rounds, unsigned a, unsigned b)
{
    float c[4][4] = {};
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
#if __CUDA_ARCH__ >= 800
                asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"
                    : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]) : "r"(a), "r"(b));
#else
                asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, {%5}, {%0, %1, %2, %3};"
                    : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]) : "r"(a), "r"(b));
#endif
            }
        }
    }
    float sum = 0.0f;
    #pragma unroll
    for (int j = 0; j < 4; ++j) sum += c[j][0] + c[j][1] + c[j][2] + c[j][3];
    if (sum == NEVER) out[threadIdx.x] = sum;
}
