// Transposed through a padded tile of 32 x 32.

// /// kernelmate
// sizes = [{ images = 32, channels = 64, pixels = 12544 }, { images = 3, channels = 5, pixels = 61 }, { images = 1, channels = 1, pixels = 1 }]
// grid = ["cdiv(pixels, 32)", "cdiv(channels, 32)", "images"]
// block = [32, 8]
// reference = "../naive/reference.py:nchw_to_nhwc"
// [args]
// x = "in float32[images, channels, pixels]"
// out = "out float32[images, pixels, channels]"
// images = "int32"
// channels = "int32"
// pixels = "int32"
// ///
__global__ void nchw_to_nhwc(const float* __restrict__ x, float* __restrict__ out, int images, int channels,
                             int pixels) {
  __shared__ float tile[32][33];
  int p = blockIdx.x * 32, c = blockIdx.y * 32;
  size_t base = (size_t)blockIdx.z * channels * pixels;
#pragma unroll
  for (int k = threadIdx.y; k < 32; k += 8)
    if (c + k < channels && p + threadIdx.x < pixels)
      tile[k][threadIdx.x] = x[base + (size_t)(c + k) * pixels + p + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int k = threadIdx.y; k < 32; k += 8)
    if (p + k < pixels && c + threadIdx.x < channels)
      out[base + (size_t)(p + k) * channels + c + threadIdx.x] = tile[threadIdx.x][k];
}
