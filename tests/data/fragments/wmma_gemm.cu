// C = alpha A B + beta C by the fragments of mma.h: four warps compute a 32 x 32 tile of C, 16 x 16 each. The tiles of A
// and B are padded in shared memory, and the epilogue works on the fragments element by element.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

// /// kernelmate
// sizes = [{ m = 64, n = 64, k = 64 }]
// grid = ["n / 32", "m / 32"]
// block = 128
// reference = "alpha * (a.astype(np.float32) @ b.astype(np.float32)) + beta * c"
// require = ["m % 32 == 0", "n % 32 == 0", "k % 16 == 0"]
// [args]
// a = "in float16[m, k]"
// b = "in float16[k, n]"
// c = "inout float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// alpha = "float32 = 1.5"
// beta = "float32 = -0.5"
// ///
__global__ void wmma_gemm(const half* a, const half* b, float* c, int m, int n, int k, float alpha, float beta) {
  __shared__ __align__(32) half as[32][16 + 8];
  __shared__ __align__(32) half bs[16][32 + 8];
  const int warp = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32;
  const int down = warp / 2 * 16, along = warp % 2 * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum, old;
  wmma::fill_fragment(sum, 0.0f);
  for (int step = 0; step < k; step += 16) {
    for (int i = threadIdx.x; i < 512; i += 128) {
      as[i / 16][i % 16] = a[(row + i / 16) * k + step + i % 16];
      bs[i / 32][i % 32] = b[(step + i / 32) * n + column + i % 32];
    }
    __syncthreads();  // tiles are written
    wmma::load_matrix_sync(left, &as[down][0], 24);
    wmma::load_matrix_sync(right, &bs[0][along], 40);
    wmma::mma_sync(sum, left, right, sum);
    __syncthreads();  // tiles are read
  }
  float* mine = c + (row + down) * n + column + along;
  wmma::load_matrix_sync(old, mine, n, wmma::mem_row_major);
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = alpha * sum.x[i] + beta * old.x[i];
  wmma::store_matrix_sync(mine, sum, n, wmma::mem_row_major);
}
