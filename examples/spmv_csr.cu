// Sparse matrix times vector, CSR, one thread per row: simple, and unbalanced as soon as the rows are.

// /// kernelmate
// sizes = [
//   { rows = 4096, cols = 4096, nnz = 65536 },
//   { rows = 853, cols = 37, nnz = 3001 },
//   { rows = 1, cols = 1, nnz = 1 },
// ]
// grid = "cdiv(rows, block)"
// block = 128
// require = ["rows > 0", "cols > 0"]
// inputs = "reference.py:make_csr"
// reference = "reference.py:spmv_csr"
// [args]
// offsets = "in int32[rows + 1]"
// columns = "in int32[nnz]"
// values = "in float32[nnz]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// ///
__global__ void spmv_csr(const int* offsets, const int* columns, const float* values, const float* x, float* y,
                         int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = offsets[row]; i < offsets[row + 1]; ++i) sum += values[i] * x[columns[i]];
  y[row] = sum;
}
