// variants of nbody: BLOCK=32 | BLOCK=64 | BLOCK=128 | BLOCK=256
// variants of nbody_tiled: BLOCK=32 | BLOCK=64 | BLOCK=128 | BLOCK=256
// variants of nbody_exact: BLOCK=128
#ifndef BLOCK
#define BLOCK 128
#endif

// /// kernelmate
// sizes = [{ n = 4096, BLOCK = 128 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// p = "in float32[n, 4]"
// f = "out float32[n]"
// n = "int32"
// ///
__global__ void nbody(const float* p, float* f, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float4* bodies = reinterpret_cast<const float4*>(p);
  const float4 me = bodies[i];
  float sum = 0.0f;
  for (int j = 0; j < n; ++j) {
    const float4 other = bodies[j];
    const float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
    sum += other.w * rsqrtf(x * x + y * y + z * z + 0.01f);
  }
  f[i] = sum;
}

// /// kernelmate
// sizes = [{ n = 4096, BLOCK = 128 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// require = ["n % BLOCK == 0"]
// [args]
// p = "in float32[n, 4]"
// f = "out float32[n]"
// n = "int32"
// ///
__global__ void nbody_tiled(const float* p, float* f, int n) {
  __shared__ float4 tile[BLOCK];
  const float4* bodies = reinterpret_cast<const float4*>(p);
  const float4 me = bodies[blockIdx.x * BLOCK + threadIdx.x];
  float sum = 0.0f;
  for (int start = 0; start < n; start += BLOCK) {
    tile[threadIdx.x] = bodies[start + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < BLOCK; ++j) {
      const float4 other = tile[j];
      const float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
      sum += other.w * rsqrtf(x * x + y * y + z * z + 0.01f);
    }
    __syncthreads();
  }
  f[blockIdx.x * BLOCK + threadIdx.x] = sum;
}

// A correctly rounded square root and division instead of the fast reciprocal root.
// /// kernelmate
// sizes = [{ n = 4096, BLOCK = 128 }]
// grid = "cdiv(n, BLOCK)"
// block = "BLOCK"
// [args]
// p = "in float32[n, 4]"
// f = "out float32[n]"
// n = "int32"
// ///
__global__ void nbody_exact(const float* p, float* f, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= n) return;
  const float4* bodies = reinterpret_cast<const float4*>(p);
  const float4 me = bodies[i];
  float sum = 0.0f;
  for (int j = 0; j < n; ++j) {
    const float4 other = bodies[j];
    const float x = other.x - me.x, y = other.y - me.y, z = other.z - me.z;
    sum += other.w / sqrtf(x * x + y * y + z * z + 0.01f);
  }
  f[i] = sum;
}
