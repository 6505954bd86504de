#include <stdint.h>
/*
 * C = A * B^T with 8 bit inputs and 32 bit sums.
 * A is M x K, B is N x K, both row-major. K is a multiple of 4.
 */

// /// kernelmate
// sizes = [{ M = 64, N = 64, K = 128 }, { M = 33, N = 21, K = 52 }, { M = 1, N = 1, K = 4 }]
// grid = ["cdiv(M, block_x)", "cdiv(N, block_y)"]
// block = [16, 16]
// require = ["K % 4 == 0"]
// reference = "A.astype('int32') @ B.astype('int32').T"
// [args]
// A = "in int8[M, K] ~ integers(-127, 127)"
// B = "in int8[N, K] ~ integers(-127, 127)"
// C = "out int32[M, N]"
// M = "int32"
// N = "int32"
// K = "int32"
// ///
__global__ void igemm(const int8_t *A, const int8_t *B, int32_t *C, int M, int N, int K)
{
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    int n = blockIdx.y * blockDim.y + threadIdx.y;

    if (m < M && n < N) {
        int32_t total = 0;
        for (int k = 0; k < K; k++) {
            int32_t a = (int32_t)A[m * K + k];
            int32_t b = (int32_t)B[n * K + k];
            total = total + a * b;
        }
        C[m * N + n] = total;
    }
}
