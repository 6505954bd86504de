// Sum of the cross entropy of a batch of logits. Thread per example.

// /// kernelmate
// sizes = [{ examples = 512, labels = 80 }, { examples = 51, labels = 13 }, { examples = 1, labels = 2 }]
// grid = "cdiv(examples, 4)"
// block = 128
// require = ["labels > 0"]
// reference = "reference.py:cross_entropy"
// tolerance = { rtol = 1e-4, atol = 1e-3 }
// [args]
// logits = "in float32[examples, labels] ~ uniform(-3, 3)"
// truth = "in int32[examples] ~ integers(0, labels)"
// total = "inout float32[1] ~ zeros"
// examples = "int32"
// labels = "int32"
// ///
__global__ void xent_sum(const float* logits, const int* truth, float* total, int examples, int labels) {
  int e = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (e >= examples) return;
  const float* z = logits + e * labels;
  float zmax = z[0];
  for (int l = lane; l < labels; l += 32) zmax = fmaxf(zmax, z[l]);
  for (int d = 16; d; d >>= 1) zmax = fmaxf(zmax, __shfl_xor_sync(~0u, zmax, d));
  float denominator = 0.0f;
  for (int l = lane; l < labels; l += 32) denominator += expf(z[l] - zmax);
  for (int d = 16; d; d >>= 1) denominator += __shfl_xor_sync(~0u, denominator, d);
  if (lane == 0) atomicAdd(total, logf(denominator) - (z[truth[e]] - zmax));
}
