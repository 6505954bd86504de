// Two tiles in turn: while one is used, the next is filled, with one barrier per step.

// /// kernelmate
// sizes = [{ n = 2048 }]
// grid = 4
// block = 64
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void double_buffer(const float* x, float* y, int n) {
  __shared__ float tiles[2][64];
  const int first = blockIdx.x * 512;
  tiles[0][threadIdx.x] = x[first + threadIdx.x];
  __syncthreads();
  for (int step = 0; step < 8; ++step) {
    if (step < 7) tiles[(step + 1) % 2][threadIdx.x] = x[first + (step + 1) * 64 + threadIdx.x];
    y[first + step * 64 + threadIdx.x] = tiles[step % 2][63 - threadIdx.x];
    __syncthreads();
  }
}
