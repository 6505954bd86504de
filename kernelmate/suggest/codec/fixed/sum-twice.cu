// asked: shared_bytes
// /// kernelmate
// sizes = [{ n = 32768 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// total = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void sum_twice(const float* x, float* total, int n) {
  __shared__ float part[1024];
  __shared__ float spare[1024];
  int t = threadIdx.x;
  float own = 0.0f;
  int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i < n) {
    own += x[i];
  }
  spare[t % 1024] = own;
  __syncthreads();
  part[t] = own;
  __syncthreads();
  for (int step = 1; step < blockDim.x; step *= 2) {
    if (t % (2 * step) == 0) part[t] += part[t + step];
    __syncthreads();
  }
  own = part[0];
  if (t == 0) atomicAdd(&total[0], own);
}
