// An asynchronous copy into shared memory is used after a barrier, but nobody has waited for the copy.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void copy_without_wait(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned to = (unsigned)__cvta_generic_to_shared(row + threadIdx.x);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + i) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  __syncthreads();
  y[i] = row[127 - threadIdx.x];
}
