#include <cassert>
#include <cstdio>
#include <iostream>

#ifdef DEBUG
#define TRACE(...) printf(__VA_ARGS__)
#else
#define TRACE(...) ((void)0)
#endif

#define HD __host__ __device__
typedef unsigned long long u64;

HD inline u64 mix(u64 x) { x ^= x >> 33; x *= 0xff51afd7ed558ccdULL; x ^= x >> 33; return x; }

static const int kRounds = 4;

__global__ void hash_keys(const u64* keys, u64* hashes, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n >= 0);
    if (i >= n) return;
    u64 h = keys[i];
    for (int r = 0; r < kRounds; ++r) h = mix(h);
    hashes[i] = h;
    TRACE("key %d hashed\n", i);
    if (h == 0) printf("key %d hashes to zero: %llu\n", i, keys[i]);
}

void usage(const char* name) { std::cerr << "usage: " << name << " N\n"; }

int main(int argc, char** argv)
{
    if (argc < 2) { usage(argv[0]); return 1; }
    u64 *keys, *hashes;
    cudaMallocManaged(&keys, 1024 * sizeof(u64));
    cudaMallocManaged(&hashes, 1024 * sizeof(u64));
    for (int i = 0; i < 1024; ++i) keys[i] = mix(i);
    hash_keys<<<4, 256>>>(keys, hashes, 1024);
    cudaDeviceSynchronize();
    std::cout << hashes[7] << std::endl;
}
