// How many samples lie above the threshold?

// /// kernelmate
// sizes = [{ n = 131072 }, { n = 3331 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:count_above"
// [args]
// samples = "in float32[n] ~ uniform(0, 1)"
// threshold = "float32 = 0.3"
// hits = "inout uint32[1] ~ zeros"
// n = "int32"
// ///
__global__ void count_above(const float* samples, float threshold, unsigned int* hits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (samples[i] > threshold) atomicAdd(hits, 1u);
}
