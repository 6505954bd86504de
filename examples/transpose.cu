// Matrix transpose through a 32 x 32 tile in shared memory: loads and stores both walk along rows. The tile has no
// padding, so reading it by columns puts all 32 lanes of a warp on one bank.
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

constexpr int kTile = 32;
constexpr int kRowsPerPass = 8;

// /// kernelmate
// sizes = [{ rows = 1024, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 32)"]
// block = [32, 8]
// reference = "reference.py:transpose"
// [args]
// in = "in float32[rows, cols]"
// out = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void transpose(const float* in, float* out, int rows, int cols) {
  __shared__ float tile[kTile][kTile];

  int col = blockIdx.x * kTile + threadIdx.x;
  int row = blockIdx.y * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRowsPerPass) {
    if (row + j < rows && col < cols) {
      tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(row + j) * cols + col];
    }
  }
  __syncthreads();

  col = blockIdx.y * kTile + threadIdx.x;
  row = blockIdx.x * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += kRowsPerPass) {
    if (row + j < cols && col < rows) {
      out[(size_t)(row + j) * rows + col] = tile[threadIdx.x][threadIdx.y + j];
    }
  }
}

#define CHECK(call)                                                                        \
  do {                                                                                     \
    cudaError_t status = (call);                                                           \
    if (status != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(EXIT_FAILURE);                                                             \
    }                                                                                      \
  } while (0)

int main() {
  const int rows = 1024, cols = 1024;
  std::vector<float> host(rows * cols);
  for (int i = 0; i < rows * cols; ++i) host[i] = static_cast<float>(i % 1013);

  float *in, *out;
  CHECK(cudaMalloc(&in, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&out, host.size() * sizeof(float)));
  CHECK(cudaMemcpy(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));

  dim3 block(kTile, kRowsPerPass);
  dim3 grid((cols + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  transpose<<<grid, block>>>(in, out, rows, cols);
  CHECK(cudaGetLastError());

  std::vector<float> back(rows * cols);
  CHECK(cudaMemcpy(back.data(), out, back.size() * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("out[1][0] = %g, in[0][1] = %g\n", back[rows], host[1]);
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  return 0;
}
