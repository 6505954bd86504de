// Index of the largest score in each row; the first one wins.
#include <cfloat>

// /// kernelmate
// sizes = [{ batch = 1024, classes = 128 }, { batch = 75, classes = 37 }, { batch = 1, classes = 1 }]
// grid = "cdiv(batch, 256)"
// block = 256
// require = ["classes > 0"]
// reference = "reference.py:argmax_rows"
// [args]
// scores = "in float32[batch, classes] ~ uniform(-4, 4)"
// best = "out int32[batch]"
// confidence = "out float32[batch]"
// batch = "int32"
// classes = "int32"
// ///
__global__ void argmaxRows(const float* scores, int* best, float* confidence, int batch, int classes) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= batch) return;
  int winner = 0;
  float top = -FLT_MAX;
  float total = 0.0f;
  for (int c = 0; c < classes; ++c) {
    float s = scores[b * classes + c];
    total += exp(s);
    if (s > top) {
      top = s;
      winner = c;
    }
  }
  best[b] = winner;
  confidence[b] = exp(top) / total;
}
