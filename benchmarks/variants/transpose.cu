// variants of transpose_reads_rows: BX=32 BY=8 | BX=16 BY=16 | BX=32 BY=32 | BX=8 BY=32
// variants of transpose_writes_rows: BX=32 BY=8 | BX=16 BY=16
// variants of transpose_tiled: TILE=32 ROWS=8 PAD=0 | TILE=32 ROWS=8 PAD=1 | TILE=32 ROWS=4 PAD=1 | TILE=32 ROWS=32 PAD=0 | TILE=32 ROWS=32 PAD=1 | TILE=16 ROWS=16 PAD=0 | TILE=16 ROWS=16 PAD=1
#ifndef TILE
#define TILE 32
#endif
#ifndef ROWS
#define ROWS 8
#endif
#ifndef PAD
#define PAD 0
#endif

// /// kernelmate
// sizes = [{ rows = 2048, cols = 2048, BX = 32, BY = 8 }]
// grid = ["cdiv(cols, BX)", "cdiv(rows, BY)"]
// block = ["BX", "BY"]
// reference = "x.T"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose_reads_rows(const float* x, float* y, int rows, int cols) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && col < cols) y[(size_t)col * rows + row] = x[(size_t)row * cols + col];
}

// /// kernelmate
// sizes = [{ rows = 2048, cols = 2048, BX = 32, BY = 8 }]
// grid = ["cdiv(rows, BX)", "cdiv(cols, BY)"]
// block = ["BX", "BY"]
// reference = "x.T"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose_writes_rows(const float* x, float* y, int rows, int cols) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && col < cols) y[(size_t)col * rows + row] = x[(size_t)row * cols + col];
}

// /// kernelmate
// sizes = [{ rows = 2048, cols = 2048, TILE = 32, ROWS = 8 }]
// grid = ["cdiv(cols, TILE)", "cdiv(rows, TILE)"]
// block = ["TILE", "ROWS"]
// reference = "x.T"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose_tiled(const float* x, float* y, int rows, int cols) {
  __shared__ float tile[TILE][TILE + PAD];
  int col = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS)
    if (row + i < rows && col < cols) tile[threadIdx.y + i][threadIdx.x] = x[(size_t)(row + i) * cols + col];
  __syncthreads();
  col = blockIdx.y * TILE + threadIdx.x;
  row = blockIdx.x * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS)
    if (row + i < cols && col < rows) y[(size_t)(row + i) * rows + col] = tile[threadIdx.x][threadIdx.y + i];
}
