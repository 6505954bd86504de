// Matrix transposition, one thread per element: reads along rows, writes along columns.

// /// kernelmate
// sizes = [{ rows = 4096, cols = 4096 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "reference.py:transpose"
// [args]
// in = "in float32[rows, cols]"
// out = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose(const float* in, float* out, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && col < cols) {
    out[col * rows + row] = in[row * cols + col];
  }
}
