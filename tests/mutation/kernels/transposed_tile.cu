// A tile read by columns: two-dimensional indices on both sides of the barrier.

// /// kernelmate
// sizes = [{ rows = 40, cols = 56 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transposed_tile(const float* x, float* y, int rows, int cols) {
  __shared__ float tile[16][17];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row < rows && col < cols) tile[threadIdx.y][threadIdx.x] = x[row * cols + col];
  __syncthreads();
  row = blockIdx.y * 16 + threadIdx.x;
  col = blockIdx.x * 16 + threadIdx.y;
  if (row < rows && col < cols) y[col * rows + row] = tile[threadIdx.x][threadIdx.y];
}
