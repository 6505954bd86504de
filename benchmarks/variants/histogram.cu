// variants of histogram_global: BLOCK=64 | BLOCK=256
// variants of histogram_shared: BLOCK=128 BLOCKS=264 | BLOCK=256 BLOCKS=264 | BLOCK=256 BLOCKS=1056 | BLOCK=1024 BLOCKS=132
// variants of histogram_warps: BLOCK=128 BLOCKS=264 | BLOCK=256 BLOCKS=264
#ifndef BLOCK
#define BLOCK 256
#endif

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in uint8[n] ~ integers(0, 256)"
// bins = "inout uint32[256]"
// n = "int32"
// ///
__global__ void histogram_global(const unsigned char* x, unsigned* bins, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1u);
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256, BLOCKS = 264 }]
// grid = "BLOCKS"
// block = "BLOCK"
// [args]
// x = "in uint8[n] ~ integers(0, 256)"
// bins = "inout uint32[256]"
// n = "int32"
// ///
__global__ void histogram_shared(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned mine[256];
  for (int i = threadIdx.x; i < 256; i += BLOCK) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) atomicAdd(&mine[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += BLOCK) atomicAdd(&bins[i], mine[i]);
}

// /// kernelmate
// sizes = [{ n = 1048576, BLOCK = 256, BLOCKS = 264 }]
// grid = "BLOCKS"
// block = "BLOCK"
// [args]
// x = "in uint8[n] ~ integers(0, 256)"
// bins = "inout uint32[256]"
// n = "int32"
// ///
__global__ void histogram_warps(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned mine[BLOCK / 32][256];
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < BLOCK / 32 * 256; i += BLOCK) mine[i / 256][i % 256] = 0;
  __syncthreads();
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) atomicAdd(&mine[warp][x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += BLOCK) {
    unsigned sum = 0;
    for (int j = 0; j < BLOCK / 32; ++j) sum += mine[j][i];
    atomicAdd(&bins[i], sum);
  }
}
