// Matrix product, one thread per element of the result, everything read from global memory.

// /// kernelmate
// sizes = [{ m = 2048, n = 2048, k = 2048 }, { m = 37, n = 53, k = 61 }, { m = 1, n = 1, k = 1 }]
// weights = [1, 0, 0]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "reference.py:matmul"
// [args]
// A = "in float32[m, k]"
// B = "in float32[k, n]"
// C = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void matmul(const float* A, const float* B, float* C, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && col < n) {
    float acc = 0.0f;
    for (int i = 0; i < k; i++) {
      acc += A[row * k + i] * B[i * n + col];
    }
    C[row * n + col] = acc;
  }
}
