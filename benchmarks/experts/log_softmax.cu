// A block per row, which stays in registers up to 1024 columns: read once, written once.

__device__ float block_sum_or_max(float v, bool largest) {
  __shared__ float part[8];
  for (int s = 16; s > 0; s /= 2) {
    float o = __shfl_xor_sync(~0u, v, s);
    v = largest ? fmaxf(v, o) : v + o;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (int w = 1; w < 8; w++) v = largest ? fmaxf(v, part[w]) : v + part[w];
  return v;
}

// /// kernelmate
// sizes = [{ rows = 16384, cols = 1024 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// require = ["cols > 0"]
// reference = "../naive/reference.py:log_softmax"
// [args]
// x = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void log_softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int cols) {
  x += (size_t)blockIdx.x * cols;
  out += (size_t)blockIdx.x * cols;
  float m = -INFINITY, sum = 0.0f;
  if (cols % 4 == 0 && cols <= 1024 && ((size_t)x | (size_t)out) % 16 == 0) {
    int c = threadIdx.x * 4;
    bool in = c < cols;
    float4 v = in ? *reinterpret_cast<const float4*>(x + c) : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    m = block_sum_or_max(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)), true);
    sum = in ? __expf(v.x - m) + __expf(v.y - m) + __expf(v.z - m) + __expf(v.w - m) : 0.0f;
    float l = m + logf(block_sum_or_max(sum, false));
    if (in) *reinterpret_cast<float4*>(out + c) = make_float4(v.x - l, v.y - l, v.z - l, v.w - l);
    return;
  }
  for (int c = threadIdx.x; c < cols; c += 256) m = fmaxf(m, x[c]);
  m = block_sum_or_max(m, true);
  for (int c = threadIdx.x; c < cols; c += 256) sum += __expf(x[c] - m);
  float l = m + logf(block_sum_or_max(sum, false));
  for (int c = threadIdx.x; c < cols; c += 256) out[c] = x[c] - l;
}
