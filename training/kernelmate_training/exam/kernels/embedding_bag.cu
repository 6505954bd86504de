// Mean of the table rows that each bag names. Empty bags give zeros.

// /// kernelmate
// sizes = [{ bags = 256, dim = 48, entries = 3000, vocab = 500 }, { bags = 33, dim = 21, entries = 190, vocab = 50 }, { bags = 1, dim = 1, entries = 1, vocab = 1 }]
// grid = "cdiv(bags, block)"
// block = 32
// require = ["bags > 0", "vocab > 0"]
// inputs = "reference.py:make_bags"
// reference = "reference.py:embedding_bag"
// [args]
// begin = "in int32[bags + 1]"
// word = "in int32[entries]"
// table = "in float32[vocab, dim]"
// mean = "out float32[bags, dim]"
// bags = "int32"
// dim = "int32"
// ///
__global__ void bag_mean(const int* begin, const int* word, const float* table, float* mean, int bags, int dim) {
  for (int bag = blockIdx.x * blockDim.x + threadIdx.x; bag < bags; bag += gridDim.x * blockDim.x) {
    const int first = begin[bag], last = begin[bag + 1];
    for (int f = 0; f < dim; ++f) {
      float acc = 0.0f;
      for (int e = first; e < last; ++e) {
        acc += table[(size_t)word[e] * dim + f];
      }
      mean[(size_t)bag * dim + f] = last > first ? acc / (last - first) : 0.0f;
    }
  }
}
