// Tiles of 64 results x 128 positions with 8 x 8 per thread; eight channels of inputs and weights in shared memory.

// /// kernelmate
// sizes = [{ batch = 16, depth = 64, width = 64, length = 4096 }, { batch = 2, depth = 3, width = 5, length = 37 }, { batch = 1, depth = 1, width = 1, length = 1 }]
// grid = ["cdiv(length, 128)", "cdiv(width, 64)", "batch"]
// block = 128
// reference = "../naive/reference.py:conv_line"
// [args]
// x = "in float32[batch, depth, length] ~ normal"
// w = "in float32[width, depth, 7] ~ normal"
// out = "out float32[batch, width, length]"
// depth = "int32"
// width = "int32"
// length = "int32"
// ///
__global__ void __launch_bounds__(128, 4)
conv_line(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out, int depth, int width,
          int length) {
  __shared__ __align__(16) float xs[8][136], ws[56][64];  // xs begins four positions before the tile
  int left = blockIdx.x * 128, top = blockIdx.y * 64, tx = threadIdx.x % 16 * 4, ty = threadIdx.x / 16 * 8;
  x += (size_t)blockIdx.z * depth * length;
  out += (size_t)blockIdx.z * width * length;
  float acc[8][8] = {};
  for (int c = 0; c < depth; c += 8) {
    int count = min(8, depth - c);
    __syncthreads();
    for (int e = threadIdx.x; e < count * 136; e += 128) {
      int p = left + e % 136 - 4;
      xs[e / 136][e % 136] = p >= 0 && p < length ? x[(size_t)(c + e / 136) * length + p] : 0.0f;
    }
    for (int e = threadIdx.x; e < count * 7 * 64; e += 128) {
      int o = top + e % 64;
      ws[e / 64][e % 64] = o < width ? w[((size_t)o * depth + c) * 7 + e / 64] : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < count; d++) {
      __align__(16) float near[12], far[12];
#pragma unroll
      for (int e = 0; e < 12; e += 4) {
        *reinterpret_cast<float4*>(near + e) = *reinterpret_cast<float4*>(&xs[d][tx + e]);
        *reinterpret_cast<float4*>(far + e) = *reinterpret_cast<float4*>(&xs[d][tx + 64 + e]);
      }
#pragma unroll
      for (int k = 0; k < 7; k++) {
        __align__(16) float q[8];
        *reinterpret_cast<float4*>(q) = *reinterpret_cast<float4*>(&ws[d * 7 + k][ty]);
        *reinterpret_cast<float4*>(q + 4) = *reinterpret_cast<float4*>(&ws[d * 7 + k][ty + 4]);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) {
            acc[i][j] += q[i] * near[j + k + 1];
            acc[i][j + 4] += q[i] * far[j + k + 1];
          }
      }
    }
  }
  bool packed = length % 4 == 0 && (size_t)out % 16 == 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int o = top + ty + i;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      int p = left + tx + j * 16;
      if (o >= width || p >= length) continue;
      float* to = out + (size_t)o * length + p;
      if (packed) {
        *reinterpret_cast<float4*>(to) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (p + e < length) to[e] = acc[i][j + e];
      }
    }
  }
}
