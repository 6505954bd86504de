// Inclusive prefix sum along each row, one block per row: Hillis and Steele's scan between two buffers in shared memory,
// chunk by chunk, with a carry.

constexpr int kChunk = 256;

// /// kernelmate
// sizes = [{ rows = 128, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// reference = "reference.py:row_scan"
// [args]
// x = "in float32[rows, cols] ~ uniform(0, 1)"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void __launch_bounds__(kChunk) row_scan(const float* x, float* y, int cols) {
  __shared__ float buffer[2][kChunk];
  const int tid = threadIdx.x;
  const float* in = x + (size_t)blockIdx.x * cols;
  float* out = y + (size_t)blockIdx.x * cols;

  float carry = 0.0f;
  for (int start = 0; start < cols; start += blockDim.x) {
    const int c = start + tid;
    int from = 0;
    buffer[from][tid] = c < cols ? in[c] : 0.0f;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
      const int to = 1 - from;
      buffer[to][tid] = buffer[from][tid] + (tid >= offset ? buffer[from][tid - offset] : 0.0f);
      from = to;
      __syncthreads();
    }
    if (c < cols) out[c] = carry + buffer[from][tid];
    carry += buffer[from][blockDim.x - 1];
    __syncthreads();  // the next chunk overwrites what carry was read from
  }
}
