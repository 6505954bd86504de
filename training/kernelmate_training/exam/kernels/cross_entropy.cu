// Sum of the cross entropy of a batch of logits. Thread per example.

// /// kernelmate
// sizes = [{ examples = 512, labels = 80 }, { examples = 51, labels = 13 }, { examples = 1, labels = 2 }]
// grid = "cdiv(examples, block)"
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
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < examples) {
    const float* z = logits + e * labels;
    float zmax = z[0];
    for (int l = 1; l < labels; ++l) zmax = max(zmax, z[l]);
    float denominator = 0.0f;
    for (int l = 0; l < labels; ++l) denominator += exp(z[l] - zmax);
    float nll = log(denominator) - (z[truth[e]] - zmax);
    atomicAdd(total, nll);
  }
}
