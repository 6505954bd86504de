// variants of reduce_interleaved: BLOCK=128 | BLOCK=512
// variants of reduce_sequential: BLOCK=128 ITEMS=1 | BLOCK=512 ITEMS=1 | BLOCK=256 ITEMS=8
// variants of reduce_shuffle: BLOCK=128 ITEMS=1 | BLOCK=256 ITEMS=8 | BLOCK=512 ITEMS=32 | BLOCK=1024 ITEMS=4
// variants of reduce_atomics: BLOCK=256
#ifndef BLOCK
#define BLOCK 256
#endif
#ifndef ITEMS
#define ITEMS 1
#endif

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void reduce_interleaved(const float* x, float* total, int n) {
  __shared__ float part[BLOCK];
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int step = 1; step < BLOCK; step *= 2) {
    if (threadIdx.x % (2 * step) == 0) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256, ITEMS = 1 }]
// grid = "cdiv(n, BLOCK * ITEMS)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void reduce_sequential(const float* x, float* total, int n) {
  __shared__ float part[BLOCK];
  float sum = 0.0f;
  for (int i = 0; i < ITEMS; ++i) {
    const int at = (blockIdx.x * ITEMS + i) * BLOCK + threadIdx.x;
    if (at < n) sum += x[at];
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256, ITEMS = 1 }]
// grid = "cdiv(n, BLOCK * ITEMS)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void reduce_shuffle(const float* x, float* total, int n) {
  __shared__ float part[32];
  float sum = 0.0f;
  for (int i = 0; i < ITEMS; ++i) {
    const int at = (blockIdx.x * ITEMS + i) * BLOCK + threadIdx.x;
    if (at < n) sum += x[at];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < BLOCK / 32 ? part[threadIdx.x] : 0.0f;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x == 0) atomicAdd(total, sum);
}

// /// kernelmate
// sizes = [{ n = 4194304, BLOCK = 256 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void reduce_atomics(const float* x, float* total, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  float sum = i < n ? x[i] : 0.0f;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}
