// Dot product: a tree in shared memory for each block, then one atomic addition.

// /// kernelmate
// sizes = [{ n = 16777216 }, { n = 31561 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "result + np.dot(x, y)"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// result = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void dot(const float* x, const float* y, float* result, int n) {
  __shared__ float partial[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? x[i] * y[i] : 0.0f;
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (threadIdx.x % (2 * s) == 0) partial[threadIdx.x] += partial[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(result, partial[0]);
}
