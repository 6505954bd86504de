typedef unsigned char u8;

// quarter turn clockwise of a gray picture

// /// kernelmate
// sizes = [{ h = 320, w = 448 }, { h = 45, w = 29 }, { h = 1, w = 1 }]
// grid = ["cdiv(h, 32)", "cdiv(w, 32)"]
// block = [32, 8]
// reference = "reference.py:rotate_image"
// [args]
// from = "in uint8[h, w] ~ integers(0, 256)"
// to = "out uint8[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void rot90(const u8 *from, u8 *to, int h, int w) {
  __shared__ u8 tile[32][36];
  const int row0 = blockIdx.x * 32, col0 = blockIdx.y * 32;
  for (int y = threadIdx.y; y < 32; y += 8)
    if (row0 + y < h && col0 + threadIdx.x < w) tile[y][threadIdx.x] = from[(row0 + y) * w + col0 + threadIdx.x];
  __syncthreads();
  for (int y = threadIdx.y; y < 32; y += 8) {
    const int row = row0 + threadIdx.x, col = col0 + y;
    if (row < h && col < w) to[col * h + (h - 1 - row)] = tile[threadIdx.x][y];
  }
}
