// A buffer is filled again while slower threads still read what it held.
// expect: shared-race

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = 4
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void shared_write_after_read(const float* x, float* y, int n) {
  __shared__ float row[128];
  for (int start = blockIdx.x * 256; start < (blockIdx.x + 1) * 256; start += 128) {
    row[threadIdx.x] = x[start + threadIdx.x];
    __syncthreads();
    y[start + threadIdx.x] = row[127 - threadIdx.x];
  }
}
