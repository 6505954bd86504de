// C = alpha * A * B + beta * C for any scalar type. Thread x is the row because that is how the formula reads.
#include <cuda_runtime.h>

namespace linalg {

// /// kernelmate
// sizes = [{ M = 160, N = 144, K = 128 }, { M = 33, N = 29, K = 47 }, { M = 1, N = 1, K = 1 }]
// grid = ["cdiv(M, 16)", "cdiv(N, 16)"]
// block = [16, 16]
// instances = ["linalg::gemm<double>"]
// reference = "reference.py:gemm"
// [args]
// M = "int32"
// N = "int32"
// K = "int32"
// alpha = "float64 = 1.25"
// A = "in float64[M, K] ~ normal"
// B = "in float64[K, N] ~ normal"
// beta = "float64 = 0.5"
// C = "inout float64[M, N] ~ normal"
// ///
template <typename T>
__global__ void gemm(int M, int N, int K, T alpha, const T* A, const T* B, T beta, T* C) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned int j = blockIdx.y * blockDim.y + threadIdx.y;

  if (i < M && j < N) {
    T tmp = T(0);
    for (int p = 0; p < K; ++p) {
      tmp += A[i * K + p] * B[p * N + j];
    }
    C[i * N + j] = alpha * tmp + beta * C[i * N + j];
  }
}

}  // namespace linalg

void run(int M, int N, int K, double alpha, const double* A, const double* B, double beta, double* C) {
  dim3 threads(16, 16);
  dim3 blocks((M + 15) / 16, (N + 15) / 16);
  linalg::gemm<double><<<blocks, threads>>>(M, N, K, alpha, A, B, beta, C);
}
