// A spin lock around an ordinary update, with a fence after it is taken and one before it is given back.

// /// kernelmate
// sizes = [{ n = 64 }]
// grid = 4
// block = 16
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// lock = "inout int32[1] ~ zeros"
// sum = "inout int32[1] ~ zeros"
// n = "int32"
// ///
__global__ void lock(const int* x, int* lock, int* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool done = i >= n;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      sum[0] += x[i];
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
