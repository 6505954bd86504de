// A block per image and channel, which stays in registers up to 4096 pixels: read once, written once.

__device__ float block_sum(float v) {
  __shared__ float part[8];
  for (int s = 16; s > 0; s /= 2) v += __shfl_xor_sync(~0u, v, s);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; w++) v += part[w];
  return v;
}

// /// kernelmate
// sizes = [{ images = 32, channels = 256, pixels = 3136 }, { images = 3, channels = 5, pixels = 61 }]
// grid = "images * channels"
// block = 256
// require = ["pixels > 0"]
// reference = "../naive/reference.py:instance_norm"
// [args]
// x = "in float32[images, channels, pixels]"
// out = "out float32[images, channels, pixels]"
// pixels = "int32"
// ///
__global__ void instance_norm(const float* __restrict__ x, float* __restrict__ out, int pixels) {
  x += (size_t)blockIdx.x * pixels;
  out += (size_t)blockIdx.x * pixels;
  float mean = 0.0f, var = 0.0f;
  if (pixels % 4 == 0 && pixels <= 4096 && ((size_t)x | (size_t)out) % 16 == 0) {
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int p = (k * 256 + threadIdx.x) * 4;
      v[k] = p < pixels ? __ldcs(reinterpret_cast<const float4*>(x + p)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) mean += v[k].x + v[k].y + v[k].z + v[k].w;
    mean = block_sum(mean) / pixels;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if ((k * 256 + threadIdx.x) * 4 >= pixels) continue;
      v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
      var += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    float r = rsqrtf(block_sum(var) / pixels + 1e-5f);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int p = (k * 256 + threadIdx.x) * 4;
      if (p < pixels)
        __stcs(reinterpret_cast<float4*>(out + p), make_float4(v[k].x * r, v[k].y * r, v[k].z * r, v[k].w * r));
    }
    return;
  }
  for (int p = threadIdx.x; p < pixels; p += 256) mean += x[p];
  mean = block_sum(mean) / pixels;
  for (int p = threadIdx.x; p < pixels; p += 256) var += (x[p] - mean) * (x[p] - mean);
  float r = rsqrtf(block_sum(var) / pixels + 1e-5f);
  for (int p = threadIdx.x; p < pixels; p += 256) out[p] = (x[p] - mean) * r;
}
