// mirrors each row of a matrix in place of a copy: out[r][c] = in[r][cols - 1 - c]

// /// kernelmate
// sizes = [{ rows = 100, cols = 333 }, { rows = 7, cols = 45 }, { rows = 1, cols = 1 }]
// grid = ["max(cols // block_x, 1)", "rows"]
// block = 64
// reference = "in_[:, ::-1]"
// [args]
// in = "in float32[rows, cols] ~ normal"
// out = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void mirrorRows(const float* in, float* out, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y;
  if (c < cols) out[r * cols + c] = in[r * cols + cols - 1 - c];
}
