// Sparse matrix in CSR times a vector, one thread per row.

// /// kernelmate
// sizes = [
//   { rows = 1000000, cols = 1000000, nnz = 10000000 },
//   { rows = 853, cols = 37, nnz = 3001 },
//   { rows = 1, cols = 1, nnz = 1 },
// ]
// grid = "cdiv(rows, block)"
// block = 256
// require = ["rows > 0", "cols > 0"]
// inputs = "reference.py:make_csr"
// reference = "reference.py:spmv"
// [args]
// row_ptr = "in int32[rows + 1]"
// col_idx = "in int32[nnz]"
// values = "in float32[nnz]"
// x = "in float32[cols]"
// y = "out float32[rows]"
// rows = "int32"
// ///
__global__ void spmv(const int* row_ptr, const int* col_idx, const float* values, const float* x, float* y, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float sum = 0.0f;
    for (int i = row_ptr[row]; i < row_ptr[row + 1]; i++) {
      sum += values[i] * x[col_idx[i]];
    }
    y[row] = sum;
  }
}
