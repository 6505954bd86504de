// asked: global_bytes
// /// kernelmate
// sizes = [{ h = 48, w = 64, d = 40 }]
// grid = ["cdiv(h, block_x)", "cdiv(w, block_y)"]
// block = [32, 8]
// [args]
// a = "in float32[d, h]"
// b = "in float32[d, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// d = "int32"
// ///
__global__ void product_turned(const float* a, const float* b, float* y, int h, int w, int d) {
  int i = threadIdx.x + blockDim.x * blockIdx.x;
  int j = threadIdx.y + blockDim.y * blockIdx.y;
  if (i >= h || j >= w) return;
  float sum = 0.0f;
  for (int k = 0; k < d; ++k) {
    sum += a[k * h + i] * b[k * w + j];
  }
  y[i * w + j] = sum;
}
