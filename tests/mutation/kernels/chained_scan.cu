// Each block waits for the block before it, takes its sum over, and passes its own on: a chained scan.

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// sums = "inout int32[cdiv(n, 128)] ~ zeros"
// flags = "inout int32[cdiv(n, 128)] ~ zeros"
// y = "out int32[n]"
// n = "int32"
// ///
__global__ void chained_scan(const int* x, int* sums, int* flags, int* y, int n) {
  __shared__ int row[128];
  __shared__ int before;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 1; k < 128; ++k) row[k] += row[k - 1];
    int sum = 0;
    if (blockIdx.x > 0) {
      while (*(volatile int*)&flags[blockIdx.x - 1] == 0) {
      }
      __threadfence();
      sum = sums[blockIdx.x - 1];
    }
    before = sum;
    sums[blockIdx.x] = sum + row[127];
    __threadfence();
    *(volatile int*)&flags[blockIdx.x] = 1;
  }
  __syncthreads();
  if (i < n) y[i] = before + row[threadIdx.x];
}
