// Largest absolute value of every block of 256 samples.

// /// kernelmate
// sizes = [{ samples = 20000 }, { samples = 1000 }, { samples = 1 }]
// grid = "cdiv(samples, 256)"
// block = 256
// reference = "reference.py:block_peak"
// [args]
// wave = "in float32[samples] ~ normal"
// peak = "out float32[cdiv(samples, 256)]"
// samples = "int32"
// ///
__global__ void block_peak(const float* wave, float* peak, int samples) {
  __shared__ float best[256];
  int me = threadIdx.x;
  int at = blockIdx.x * 256 + me;
  best[me] = at < samples ? fabsf(wave[at]) : 0.0f;
  __syncthreads();
  for (int width = 128; width > 0; width >>= 1) {
    if (me < width) best[me] = fmaxf(best[me], best[me + width]);
  }
  if (me == 0) peak[blockIdx.x] = best[0];
}
