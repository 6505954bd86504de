// asked: global_bytes
// /// kernelmate
// sizes = [{ h = 96, w = 160 }]
// grid = ["cdiv(w, block_x)", "cdiv(h, block_y)"]
// block = [32, 8]
// [args]
// x = "in int32[h, w]"
// y = "out int32[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void turn(const int* x, int* y, int h, int w) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < h && c < w) {
    y[c * h + r] = x[r * w + c];
  }
}
