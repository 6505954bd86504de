// asked: time
// /// kernelmate
// sizes = [{ n = 49152 }]
// grid = "cdiv(n, 512)"
// block = 512
// [args]
// x = "in float32[n]"
// total = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void sum_all(const float* x, float* total, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&total[0], x[i]);
  }
}
