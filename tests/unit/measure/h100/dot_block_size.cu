// 12.72 us on an H100 80GB HBM3: CUDA graph replay period, L2 warm, 1980 MHz, driver 580.
constexpr int kBlock = 64;

// /// kernelmate
// sizes = [{ n = 262144 }]
// grid = "min(cdiv(n, block), 64)"
// block = 64
// [args]
// x = "in float32[n] ~ normal"
// y = "in float32[n] ~ normal"
// result = "inout float32[1] ~ zeros"
// n = "int32"
// ///
__global__ void dot(const float* x, const float* y, float* result, int n) {
  __shared__ float partial[kBlock];
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(result, partial[0]);
}
