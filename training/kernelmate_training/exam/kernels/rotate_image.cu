typedef unsigned char u8;

// quarter turn clockwise of a gray picture

// /// kernelmate
// sizes = [{ h = 320, w = 448 }, { h = 45, w = 29 }, { h = 1, w = 1 }]
// grid = ["cdiv(h, block_x)", "cdiv(w, block_y)"]
// block = [16, 16]
// reference = "reference.py:rotate_image"
// [args]
// from = "in uint8[h, w] ~ integers(0, 256)"
// to = "out uint8[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void rot90(const u8 *from, u8 *to, int h, int w) {
  const int row = threadIdx.x + blockIdx.x * blockDim.x, col = threadIdx.y + blockIdx.y * blockDim.y;
  if (row < h && col < w) to[col * h + (h - 1 - row)] = from[row * w + col];
}
