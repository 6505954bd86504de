// A block per row; the sum stays in registers up to 2048 columns.

__device__ float block_sum(float v) {
  __shared__ float part[8];
  for (int s = 16; s > 0; s /= 2) v += __shfl_xor_sync(~0u, v, s);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.0f;
  for (int w = 0; w < 8; w++) v += part[w];
  return v;
}

// /// kernelmate
// sizes = [{ rows = 8192, cols = 2048 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// require = ["cols > 0"]
// reference = "../naive/reference.py:residual_rmsnorm"
// [args]
// x = "in float32[rows, cols]"
// residual = "in float32[rows, cols]"
// weight = "in float32[cols]"
// total = "out float32[rows, cols]"
// out = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void residual_rmsnorm(const float* __restrict__ x, const float* __restrict__ residual,
                                 const float* __restrict__ weight, float* __restrict__ total, float* __restrict__ out,
                                 int cols) {
  size_t base = (size_t)blockIdx.x * cols;
  float s = 0.0f;
  if (cols % 4 == 0 && cols <= 2048 &&
      ((size_t)x | (size_t)residual | (size_t)weight | (size_t)total | (size_t)out) % 16 == 0) {
    float4 v[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      int c = (k * 256 + threadIdx.x) * 4;
      if (c >= cols) continue;
      float4 a = *reinterpret_cast<const float4*>(x + base + c), b = *reinterpret_cast<const float4*>(residual + base + c);
      v[k] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
      *reinterpret_cast<float4*>(total + base + c) = v[k];
      s += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    float r = rsqrtf(block_sum(s) / cols + 1e-5f);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      int c = (k * 256 + threadIdx.x) * 4;
      if (c >= cols) continue;
      float4 w = *reinterpret_cast<const float4*>(weight + c);
      *reinterpret_cast<float4*>(out + base + c) =
          make_float4(v[k].x * r * w.x, v[k].y * r * w.y, v[k].z * r * w.z, v[k].w * r * w.w);
    }
    return;
  }
  for (int c = threadIdx.x; c < cols; c += 256) {
    float v = x[base + c] + residual[base + c];
    total[base + c] = v;
    s += v * v;
  }
  float r = rsqrtf(block_sum(s) / cols + 1e-5f);
  for (int c = threadIdx.x; c < cols; c += 256) out[base + c] = (x[base + c] + residual[base + c]) * r * weight[c];
}
