#include <stdint.h>
/*
 * C = A * B^T with 8 bit inputs and 32 bit sums.
 * A is M x K, B is N x K, both row-major. K is a multiple of 4.
 */

// /// kernelmate
// sizes = [{ M = 64, N = 64, K = 128 }, { M = 33, N = 21, K = 52 }, { M = 1, N = 1, K = 4 }]
// grid = ["cdiv(N, block_x)", "cdiv(M, block_y)"]
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
    __shared__ int as[16][17], bs[16][17];
    int n = blockIdx.x * 16 + threadIdx.x;
    int m = blockIdx.y * 16 + threadIdx.y;
    int row = blockIdx.x * 16 + threadIdx.y;
    int total = 0;
    for (int base = 0; base < K; base += 16) {
        int k = base + threadIdx.x;
        as[threadIdx.y][threadIdx.x] = m < M && k < K ? A[m * K + k] : 0;
        bs[threadIdx.y][threadIdx.x] = row < N && k < K ? B[row * K + k] : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) total += as[threadIdx.y][i] * bs[threadIdx.x][i];
        __syncthreads();
    }
    if (m < M && n < N) C[m * N + n] = total;
}
