// asked: shared_bytes
// asked: time
// /// kernelmate
// sizes = [{ rows = 9, cols = 300 }]
// grid = "rows"
// block = 128
// require = ["cols > 0"]
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void one_adds(const float* x, float* y, int rows, int cols) {
  __shared__ float part[128];
  const int t = threadIdx.x;
  float own = 0.0f;
  for (int c = t; c < cols; c += 128) own = own + x[blockIdx.x * cols + c];
  part[t] = own;
  __syncthreads();
  if (t == 0) {
    float sum = 0.0f;
    for (int i = 0; i < 128; ++i) sum += part[i];
    y[blockIdx.x] = sum;
  }
  __syncthreads();
}
