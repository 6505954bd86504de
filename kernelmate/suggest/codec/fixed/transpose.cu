// asked: shared_bytes
// /// kernelmate
// sizes = [{ h = 96, w = 64 }]
// grid = ["cdiv(w, 32)", "cdiv(h, 32)"]
// block = [32, 32]
// [args]
// x = "in float32[h, w]"
// y = "out float32[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void transpose(const float* x, float* y, int h, int w) {
  __shared__ float tile[64][32];
  __shared__ float other[32][32];
  int i = blockIdx.x * 32 + threadIdx.x;
  int j = blockIdx.y * 32 + threadIdx.y;
  if (i < w && j < h) tile[threadIdx.y][threadIdx.x] = x[j * w + i];
  __syncthreads();
  other[threadIdx.y][threadIdx.x] = tile[threadIdx.y][threadIdx.x];
  __syncthreads();
  if (i < w && j < h) y[i * h + j] = other[threadIdx.y][threadIdx.x];
}
