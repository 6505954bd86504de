// Asynchronous copies two steps ahead, each waited for before the barrier that lets others use it.

// /// kernelmate
// sizes = [{ n = 2048 }]
// grid = 4
// block = 64
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__device__ void start_copy(float* to, const float* from) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ void wait_all_but_one() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
__device__ void wait_for_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__global__ void copy_pipeline(const float* x, float* y, int n) {
  __shared__ float tiles[3][64];
  const float* in = x + blockIdx.x * 512;
  start_copy(&tiles[0][threadIdx.x], in + threadIdx.x);
  start_copy(&tiles[1][threadIdx.x], in + 64 + threadIdx.x);
  for (int step = 0; step < 8; ++step) {
    if (step < 7) {
      wait_all_but_one();
    } else {
      wait_for_all();
    }
    __syncthreads();
    if (step < 6) start_copy(&tiles[(step + 2) % 3][threadIdx.x], in + (step + 2) * 64 + threadIdx.x);
    y[blockIdx.x * 512 + step * 64 + threadIdx.x] = tiles[step % 3][63 - threadIdx.x];
  }
}
