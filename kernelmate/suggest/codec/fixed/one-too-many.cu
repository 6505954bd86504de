// says: out-of-bounds-read: line 17: reads 4 bytes at byte 160 of shared memory, of which the block has 160 bytes, by thread 19 of block (6, 0, 0), 7 times in all
// /// kernelmate
// sizes = [{ rows = 12, cols = 40 }]
// grid = "rows"
// block = 128
// shared = "cols * 4"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void one_too_many(const float* x, float* y, int rows, int cols) {
  extern __shared__ float own[];
  for (int c = threadIdx.x; c < cols; c += blockDim.x) own[c] = x[blockIdx.x * cols + c];
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int c = 0; c <= cols; c++) sum += own[c];
    y[blockIdx.x] = sum;
  }
}
