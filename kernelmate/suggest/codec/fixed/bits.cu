// asked: registers
// /// kernelmate
// sizes = [{ rows = 48, cols = 64 }]
// grid = "cdiv(rows, block)"
// block = 128
// [args]
// x = "in uint32[rows, cols]"
// y = "out int32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void bits(const unsigned int* x, int* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) { return; }
  int sum = 0;
  int c = 0;
  while (c < cols) {
    unsigned int word = x[r * cols + c];
    for (int b = 0; b < 32; ++b) sum += (word >> b) & 1u;
    c += 1;
  }
  y[r] = sum;
}
