// Both stages count blocks in one variable of the module.
// /// kernelmate
// pipeline = "sum_in_two"
// sizes = [{ n = 20000 }, { n = 1037 }, { n = 1 }]
// reference = "../reference.py:total"
// [args]
// x = "in float32[n]"
// partial = "scratch float32[cdiv(n, 1024)]"
// total = "out float32[1]"
// n = "int32"
// [[stages]]
// kernel = "partial_sums"
// grid = "cdiv(n, 1024)"
// block = 256
// reference = "np.add.reduceat(x, np.arange(0, n, 1024))"
// [[stages]]
// kernel = "add_up"
// grid = 1
// block = 256
// args = { sums = "partial", count = "cdiv(n, 1024)" }
// ///

__device__ unsigned int blocks;

__device__ float block_sum(float value) {
  __shared__ float tree[256];
  tree[threadIdx.x] = value;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  return tree[0];
}

__global__ void partial_sums(const float* x, float* partial, int n) {
  float value = 0.0f;
  const int first = blockIdx.x * 1024;
  for (int i = first + threadIdx.x; i < min(first + 1024, n); i += blockDim.x) value += x[i];
  value = block_sum(value);
  if (threadIdx.x == 0) partial[blockIdx.x] = value + 0.0f * atomicAdd(&blocks, 1);
}

// /// kernelmate
// sizes = [{ count = 500 }, { count = 3 }]
// grid = 1
// block = 256
// reference = "np.sum(sums).reshape(1)"
// [args]
// sums = "in float32[count]"
// total = "out float32[1]"
// count = "int32"
// ///
__global__ void add_up(const float* sums, float* total, int count) {
  float value = 0.0f;
  for (int i = threadIdx.x; i < count; i += blockDim.x) value += sums[i];
  value = block_sum(value);
  if (threadIdx.x == 0) *total = value + 0.0f * atomicAdd(&blocks, 1);
}
