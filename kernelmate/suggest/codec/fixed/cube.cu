// asked: global_bytes
// /// kernelmate
// sizes = [{ d = 12, h = 24, w = 64 }]
// grid = "cdiv(d * h * w, block)"
// block = 256
// [args]
// x = "in float32[d, h, w]"
// f = "in float32[w]"
// y = "out float32[h, d, w]"
// d = "int32"
// h = "int32"
// w = "int32"
// ///
__global__ void cube(const float* x, const float* f, float* y, int d, int h, int w) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t < d * h * w) {
    const int i = t % h;
    const int j = t / h % d;
    const int k = t / (h * d);
    y[(i * d + j) * w + k] = f[k] * x[(j * h + i) * w + k];
  }
}
