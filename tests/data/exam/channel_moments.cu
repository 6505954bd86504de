// Sum and sum of squares per channel of an NCHW batch (training batch norm). One block per channel.

// /// kernelmate
// sizes = [{ N = 8, C = 8, HW = 784 }, { N = 3, C = 5, HW = 25 }, { N = 1, C = 1, HW = 1 }]
// grid = "C"
// block = 1024
// reference = "reference.py:channel_moments"
// tolerance = { rtol = 1e-4, atol = 1e-3 }
// [args]
// x = "in float32[N, C, HW] ~ uniform(0.5, 1.5)"
// moments = "inout float32[C, 2] ~ zeros"
// N = "int32"
// C = "int32"
// HW = "int32"
// ///
__global__ void bn_moments(const float* x, float* moments, int N, int C, int HW) {
  __shared__ float part[2][32];
  float s1 = 0, s2 = 0;
  for (int i = threadIdx.x; i < N * HW; i += blockDim.x) {
    int n = i / HW, pixel = i % HW;
    float value = x[(n * C + blockIdx.x) * HW + pixel];
    s1 += value;
    s2 += value * value;
  }
  for (int d = 16; d; d >>= 1) {
    s1 += __shfl_xor_sync(~0u, s1, d);
    s2 += __shfl_xor_sync(~0u, s2, d);
  }
  if (threadIdx.x % 32 == 0) {
    part[0][threadIdx.x / 32] = s1;
    part[1][threadIdx.x / 32] = s2;
  }
  __syncthreads();
  if (threadIdx.x < 2) {
    float s = 0;
    for (int w = 0; w < 32; ++w) s += part[threadIdx.x][w];
    moments[blockIdx.x * 2 + threadIdx.x] += s;
  }
}
