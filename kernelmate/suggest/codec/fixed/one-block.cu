// asked: time
// /// kernelmate
// sizes = [{ n = 49152 }]
// grid = 1
// block = 256
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void one_block(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const float own = x[i];
    y[i] = own + 0.5f;
  }
}
