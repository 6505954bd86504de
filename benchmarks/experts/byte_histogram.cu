// A histogram for each warp in shared memory and 16 bytes per load.

// /// kernelmate
// sizes = [{ n = 67108864 }, { n = 4099 }, { n = 1 }]
// grid = "min(cdiv(n, 4096), 1056)"
// block = 256
// reference = "../naive/reference.py:byte_histogram"
// [args]
// x = "in uint8[n]"
// counts = "inout uint32[256] ~ zeros"
// n = "int32"
// ///
__global__ void byte_histogram(const unsigned char* __restrict__ x, unsigned* counts, int n) {
  __shared__ unsigned own[8][256];  // one for each warp
  for (int b = threadIdx.x; b < 2048; b += 256) own[b / 256][b % 256] = 0;
  __syncthreads();
  unsigned* mine = own[threadIdx.x / 32];
  int packs = (size_t)x % 16 == 0 ? n / 16 : 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < packs; i += gridDim.x * 256) {
    uint4 v = __ldcs(reinterpret_cast<const uint4*>(x) + i);
    unsigned words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int w = 0; w < 4; w++)
#pragma unroll
      for (int s = 0; s < 32; s += 8) atomicAdd(&mine[words[w] >> s & 255], 1u);
  }
  for (int i = packs * 16 + blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&mine[x[i]], 1u);
  __syncthreads();
  unsigned sum = 0;
#pragma unroll
  for (int w = 0; w < 8; w++) sum += own[w][threadIdx.x];
  if (sum) atomicAdd(&counts[threadIdx.x], sum);
}
