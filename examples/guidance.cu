// Classifier-free guidance: pushes the model's conditional prediction away from the unconditional one.

// /// kernelmate
// sizes = [{ n = 262144 }, { n = 31561 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "uncond + scale * (cond - uncond)"
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
