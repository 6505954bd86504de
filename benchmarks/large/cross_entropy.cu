// Cross-entropy of each row of logits against its label, one thread per row.

// /// kernelmate
// sizes = [{ rows = 16384, classes = 2048 }, { rows = 37, classes = 53 }, { rows = 1, classes = 1 }]
// grid = "cdiv(rows, block)"
// block = 128
// require = ["classes > 0"]
// reference = "reference.py:cross_entropy"
// [args]
// logits = "in float32[rows, classes]"
// labels = "in int32[rows] ~ integers(0, classes)"
// loss = "out float32[rows]"
// rows = "int32"
// classes = "int32"
// ///
__global__ void cross_entropy(const float* logits, const int* labels, float* loss, int rows, int classes) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* z = logits + (size_t)row * classes;
  float largest = z[0];
  for (int j = 1; j < classes; j++) largest = fmaxf(largest, z[j]);
  float sum = 0.0f;
  for (int j = 0; j < classes; j++) sum += expf(z[j] - largest);
  loss[row] = logf(sum) - (z[labels[row]] - largest);
}
