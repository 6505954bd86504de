// One explicit step of the heat equation on a 2-D grid: five-point stencil, the border stays as it is.
#include <cstdio>
#include <utility>
#include <cuda_runtime.h>

// /// kernelmate
// sizes = [{ height = 384, width = 512 }, { height = 37, width = 853 }, { height = 1, width = 1 }]
// grid = ["cdiv(width, block_x)", "cdiv(height, block_y)"]
// block = [16, 16]
// reference = "reference.py:heat_step"
// [args]
// u = "in float32[height, width]"
// next = "out float32[height, width]"
// height = "int32"
// width = "int32"
// rate = "float32 = 0.2"
// ///
__global__ void heat_step(const float* u, float* next, int height, int width, float rate) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const int i = y * width + x;
  if (x == 0 || x == width - 1 || y == 0 || y == height - 1) {
    next[i] = u[i];
  } else {
    const float around = u[i - 1] + u[i + 1] + u[i - width] + u[i + width];
    next[i] = u[i] + rate * (around - 4.0f * u[i]);
  }
}

int main() {
  const int width = 512, height = 384, steps = 100;
  float *u, *next;
  cudaMallocManaged(&u, width * height * sizeof(float));
  cudaMallocManaged(&next, width * height * sizeof(float));
  for (int i = 0; i < width * height; ++i) u[i] = i == width * height / 2 + width / 2 ? 1000.0f : 0.0f;

  const dim3 block(16, 16);
  const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
  for (int step = 0; step < steps; ++step) {
    heat_step<<<grid, block>>>(u, next, height, width, 0.2f);
    std::swap(u, next);
  }
  cudaDeviceSynchronize();
  std::printf("centre after %d steps: %f\n", steps, u[width * height / 2 + width / 2]);
  cudaFree(u);
  cudaFree(next);
  return 0;
}
