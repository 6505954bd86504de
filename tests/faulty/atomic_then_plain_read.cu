// A sum in shared memory is read while other threads still add to it atomically.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// y = "out int32[cdiv(n, 128)]"
// n = "int32"
// ///
__global__ void atomic_then_plain_read(const int* x, int* y, int n) {
  __shared__ int sum;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (i < n) atomicAdd(&sum, x[i]);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
