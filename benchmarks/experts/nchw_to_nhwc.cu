// Transposed through a tile of 64 x 64 in 16-byte packs both ways; swizzled, so that no two lanes meet in a bank.

// /// kernelmate
// sizes = [{ images = 32, channels = 64, pixels = 12544 }, { images = 3, channels = 5, pixels = 61 }, { images = 1, channels = 1, pixels = 1 }]
// grid = ["cdiv(pixels, 64) * images", "cdiv(channels, 64)"]
// block = 256
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
  __shared__ __align__(16) float tile[64][64];  // [pixel][channel ^ pixel / 4 % 8 * 4]
  int strips = (pixels + 63) / 64, image = blockIdx.x / strips;  // images in x, where they may be more than 65535
  int left = blockIdx.x % strips * 64, top = blockIdx.y * 64, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x += (size_t)image * channels * pixels;
  out += (size_t)image * channels * pixels;
  bool wide_in = pixels % 4 == 0 && (size_t)x % 16 == 0, wide_out = channels % 4 == 0 && (size_t)out % 16 == 0;
  float4 v[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {  // eight lanes on one channel, four channels per warp
    int p = left + warp % 2 * 32 + lane % 8 * 4, c = top + k * 16 + warp / 2 * 4 + lane / 8;
    const float* from = x + (size_t)c * pixels + p;
    v[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (c >= channels || p >= pixels) continue;
    if (wide_in) {
      v[k] = __ldcs(reinterpret_cast<const float4*>(from));
    } else {
      v[k].x = from[0];
      if (p + 1 < pixels) v[k].y = from[1];
      if (p + 2 < pixels) v[k].z = from[2];
      if (p + 3 < pixels) v[k].w = from[3];
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    int p = warp % 2 * 32 + lane % 8 * 4, c = (k * 16 + warp / 2 * 4 + lane / 8) ^ lane % 8 * 4;
    tile[p][c] = v[k].x;
    tile[p + 1][c] = v[k].y;
    tile[p + 2][c] = v[k].z;
    tile[p + 3][c] = v[k].w;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 4; k++) {
    int p = k * 16 + threadIdx.x / 16, c = threadIdx.x % 16 * 4;
    float4 u = *reinterpret_cast<float4*>(&tile[p][c ^ p / 4 % 8 * 4]);
    p += left, c += top;
    float* to = out + (size_t)p * channels + c;
    if (p >= pixels || c >= channels) continue;
    if (wide_out) {
      __stcs(reinterpret_cast<float4*>(to), u);
    } else {
      to[0] = u.x;
      if (c + 1 < channels) to[1] = u.y;
      if (c + 2 < channels) to[2] = u.z;
      if (c + 3 < channels) to[3] = u.w;
    }
  }
}
