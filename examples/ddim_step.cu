// One DDIM step of a diffusion sampler: from the noisy latent and the predicted noise to the next, less noisy latent.
// The literals are doubles, as they come out of a port from Python.

// /// kernelmate
// sizes = [{ n = 131072 }, { n = 31561 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:ddim_step"
// [args]
// x = "in float32[n] ~ normal"
// eps = "in float32[n] ~ normal"
// noise = "in float32[n] ~ normal"
// out = "out float32[n]"
// alpha = "float32 = 0.6"
// alpha_prev = "float32 = 0.75"
// sigma = "float32 = 0.1"
// n = "int32"
// ///
__global__ void ddim_step(float* x, float* eps, float* noise, float* out, float alpha, float alpha_prev, float sigma,
                          int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float clean = (x[i] - sqrt(1.0 - alpha) * eps[i]) / sqrt(alpha);
    float direction = sqrt(1.0 - alpha_prev - sigma * sigma) * eps[i];
    out[i] = sqrt(alpha_prev) * clean + direction + sigma * noise[i];
  }
}
