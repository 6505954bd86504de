// asked: time
// /// kernelmate
// sizes = [{ n = 5000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void sum_squares(const float* x, float* total, int n) {
  __shared__ float part[256];
  int t = threadIdx.x;
  int i = blockIdx.x * blockDim.x + t;
  part[t] = i < n ? powf(x[i], 2.0f) : 0.0f;
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) atomicAdd(total, part[0]);
}
