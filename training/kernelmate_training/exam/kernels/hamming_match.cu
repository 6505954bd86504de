// For each query descriptor (256 bits) the nearest one of a small map, by Hamming distance. Ties: the lower index.
#define WORDS 8

__device__ int bits_set(unsigned x) {
  int n = 0;
  for (int b = 0; b < 32; ++b)
    if (x & (1u << b)) ++n;
  return n;
}

// /// kernelmate
// sizes = [{ queries = 256, map = 10 }, { queries = 37, map = 5 }, { queries = 1, map = 1 }]
// grid = "cdiv(queries, 64)"
// block = 64
// require = ["map > 0"]
// reference = "reference.py:hamming_match"
// [args]
// query = "in uint32[queries, 8]"
// entry = "in uint32[map, 8]"
// nearest = "out int32[queries]"
// queries = "int32"
// map = "int32"
// ///
__global__ void nearest_descriptor(const unsigned* query, const unsigned* entry, int* nearest, int queries, int map) {
  int q = blockIdx.x * blockDim.x + threadIdx.x;
  if (q >= queries) return;
  int best = 1 << 30, where = -1;
  for (int m = 0; m < map; ++m) {
    int distance = 0;
    for (int word = 0; word < WORDS; ++word) distance += bits_set(query[q * WORDS + word] ^ entry[m * WORDS + word]);
    if (distance < best) {
      best = distance;
      where = m;
    }
  }
  nearest[q] = where;
}
