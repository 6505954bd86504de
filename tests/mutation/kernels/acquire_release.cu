// A flag that is stored with release and loaded with acquire: no fences needed.

// /// kernelmate
// sizes = [{ n = 512 }]
// grid = 2
// block = 128
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// scratch = "inout int32[n] ~ zeros"
// flag = "inout int32[1] ~ zeros"
// y = "out int32[n]"
// n = "int32"
// ///
__global__ void acquire_release(const int* x, int* scratch, int* flag, int* y, int n) {
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) scratch[i] = 3 * x[i];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    return;
  }
  if (threadIdx.x == 0) {
    int seen = 0;
    while (seen == 0) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = scratch[n - 1 - i];
}
