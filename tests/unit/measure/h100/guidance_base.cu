// 2.20 us on an H100 80GB HBM3: CUDA graph replay period, L2 warm, 1980 MHz, driver 580.
// /// kernelmate
// sizes = [{ n = 262144 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// cond = "in float32[n]"
// uncond = "in float32[n]"
// out = "out float32[n]"
// scale = "float32 = 7.5"
// n = "int32"
// ///
__global__ void guidance(float* cond, float* uncond, float* out, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = uncond[i] + scale * (cond[i] - uncond[i]);
}
