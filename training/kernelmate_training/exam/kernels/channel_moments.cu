// Sum and sum of squares per channel of an NCHW batch (training batch norm). One block per channel.

// /// kernelmate
// sizes = [{ N = 8, C = 8, HW = 784 }, { N = 3, C = 5, HW = 25 }, { N = 1, C = 1, HW = 1 }]
// grid = "C"
// block = 256
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
  for (int i = threadIdx.x; i < N * HW; i += blockDim.x) {
    int n = i / HW, pixel = i % HW;
    float value = x[(n * C + blockIdx.x) * HW + pixel];
    atomicAdd(&moments[blockIdx.x * 2], value);
    atomicAdd(&moments[blockIdx.x * 2 + 1], value * value);
  }
}
