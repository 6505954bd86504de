// SwiGLU of a transformer's feed-forward block: SiLU of the gate times the up projection. `1.0` and `exp` make it double
// arithmetic, at 1/64 of the float rate on most GPUs.

// /// kernelmate
// sizes = [{ n = 131072 }, { n = 31561 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:swiglu"
// [args]
// gate = "in float32[n] ~ normal"
// up = "in float32[n] ~ normal"
// out = "out float32[n]"
// n = "int32"
// ///
__global__ void swiglu(float* gate, float* up, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float g = gate[i];
    out[i] = g / (1.0 + exp(-1.0 * g)) * up[i];
  }
}
