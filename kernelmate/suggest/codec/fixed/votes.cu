// says: divergent-barrier: line 15: waits at this barrier while other threads of the block wait at another one, by threads 129, 130, 131, 132 of block (0, 0, 0), 992 times in all
// /// kernelmate
// sizes = [{ n = 49152 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// y = "out int32[cdiv(n, 256)]"
// n = "int32"
// ///
__global__ void votes(const float* x, int* y, int n) {
  __shared__ int part[8];
  const int i = threadIdx.x + blockDim.x * blockIdx.x;
  const int own = __popc(__ballot_sync(0xffffffffu, i < n && fabsf(x[i]) < 0.5f));
  if (threadIdx.x % 32 == 0) {
    part[threadIdx.x / 32] = own;
    __syncthreads();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int warp = 0; warp < 8; ++warp) sum += part[warp];
    y[blockIdx.x] = sum;
  }
}
