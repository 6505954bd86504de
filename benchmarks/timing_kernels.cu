// Kernels whose times span 2 us to 50 ms: what timing is held against Nsight Compute with.

// What any launch takes.
// /// kernelmate
// sizes = [{ n = 1 }]
// grid = 1
// block = 32
// [args]
// y = "out float32[n]"
// ///
__global__ void empty(float* y) {}

// /// kernelmate
// sizes = [{ n = 32 }, { n = 4096 }, { n = 262144 }, { n = 1048576 }, { n = 4194304 }, { n = 16777216 }, { n = 33554432 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void copy(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}

// In place: without its input restored it would run away to infinity.
// /// kernelmate
// sizes = [{ n = 65536 }, { n = 8388608 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void square_in_place(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * x[i] * 1.5f;
}

// Arithmetic only: as long as asked for.
// /// kernelmate
// sizes = [{ n = 131072, rounds = 200 }, { n = 131072, rounds = 2000 }, { n = 1048576, rounds = 2000 }, { n = 1048576, rounds = 40000 }, { n = 2097152, rounds = 240000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// y = "out float32[n]"
// n = "int32"
// rounds = "int32"
// ///
__global__ void arithmetic(float* y, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = i * 1e-6f, b = 0.5f;
  for (int k = 0; k < rounds; ++k) {
    a = a * b + 0.25f;
    b = b * 0.999f + a * 1e-7f;
  }
  if (i < n) y[i] = a + b;
}

// One warp that waits for memory: latency and nothing else.
// /// kernelmate
// sizes = [{ n = 4096, hops = 8 }, { n = 4096, hops = 64 }, { n = 8388608, hops = 2000 }]
// grid = 1
// block = 32
// [args]
// next = "in int32[n] ~ integers(0, n)"
// last = "out int32[32]"
// n = "int32"
// hops = "int32"
// ///
__global__ void chase(const int* next, int* last, int n, int hops) {
  int at = (threadIdx.x * 977) % n;
  for (int k = 0; k < hops; ++k) at = next[at];
  last[threadIdx.x] = at;
}

// Writes by columns: each warp touches 32 sectors.
// /// kernelmate
// sizes = [{ rows = 512, cols = 512 }, { rows = 4096, cols = 4096 }]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 8)"]
// block = [32, 8]
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose(const float* x, float* y, int rows, int cols) {
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < cols) y[(size_t)c * rows + r] = x[(size_t)r * cols + c];
}

// Shared memory and barriers.
// /// kernelmate
// sizes = [{ n = 64 }, { n = 256 }, { n = 512 }, { n = 1024 }, { n = 2048 }, { n = 4096 }]
// grid = ["cdiv(n, 16)", "cdiv(n, 16)"]
// block = [16, 16]
// [args]
// a = "in float32[n, n]"
// b = "in float32[n, n]"
// c = "out float32[n, n]"
// n = "int32"
// ///
__global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float s[16][16], t[16][16];
  const int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < n; k += 16) {
    s[threadIdx.y][threadIdx.x] = r < n && k + threadIdx.x < n ? a[(size_t)r * n + k + threadIdx.x] : 0.0f;
    t[threadIdx.y][threadIdx.x] = q < n && k + threadIdx.y < n ? b[(size_t)(k + threadIdx.y) * n + q] : 0.0f;
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += s[threadIdx.y][j] * t[j][threadIdx.x];
    __syncthreads();
  }
  if (r < n && q < n) c[(size_t)r * n + q] = sum;
}

// Atomics that meet in a few addresses.
// /// kernelmate
// sizes = [{ n = 131072 }, { n = 8388608 }]
// grid = "cdiv(n, 1024)"
// block = 256
// [args]
// samples = "in uint8[n]"
// counts = "inout uint32[256] ~ zeros"
// n = "int32"
// ///
__global__ void histogram(const unsigned char* samples, unsigned int* counts, int n) {
  for (int i = blockIdx.x * 1024 + threadIdx.x; i < n && i < (blockIdx.x + 1) * 1024; i += 256) atomicAdd(&counts[samples[i]], 1u);
}

// Reduced by warps, two passes: a row for each block.
// /// kernelmate
// sizes = [{ rows = 64, cols = 1024 }, { rows = 2048, cols = 2048 }, { rows = 8192, cols = 4096 }]
// grid = "rows"
// block = 256
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void normalize(const float* x, float* y, int cols) {
  __shared__ float part[8];
  const float* row = x + (size_t)blockIdx.x * cols;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += 256) sum += row[i] * row[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0.0f;
  for (int w = 0; w < 8; ++w) all += part[w];
  const float scale = rsqrtf(all / cols + 1e-6f);
  for (int i = threadIdx.x; i < cols; i += 256) y[(size_t)blockIdx.x * cols + i] = row[i] * scale;
}
