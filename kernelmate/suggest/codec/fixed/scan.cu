// asked: shared_bytes
// /// kernelmate
// sizes = [{ rows = 9, cols = 128 }]
// grid = "rows"
// block = 128
// require = ["cols <= 128"]
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void scan(const float* x, float* y, int rows, int cols) {
  __shared__ float part[128];
  const int t = threadIdx.x;
  part[t] = t < cols ? x[blockIdx.x * cols + t] : 0.0f;
  __syncthreads();
  for (int o = 1; o < 128; o *= 2) {
    const float add = t >= o ? part[t - o] : 0.0f;
    __syncthreads();
    part[t] += add;
    __syncthreads();
  }
  if (t < cols) y[blockIdx.x * cols + t] = part[t];
}
