// What timing needs besides the kernels that are timed.

__global__ void empty() {}

// Reads a buffer that is larger than L2, so that nothing else is left there. Reads leave no dirty lines to write back.
__global__ void flush(const float4* x, float* sink, long long n) {
  float sum = 0.0f;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    sum += x[i].x + x[i].w;
  if (sum == -1.0f) *sink = sum;
}
