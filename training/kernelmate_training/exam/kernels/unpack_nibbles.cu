#include <cstdint>
// 4 bit weights, eight in a word, to float: (nibble - 8) * scale of its group of 32.

// /// kernelmate
// sizes = [{ words = 16384 }, { words = 404 }, { words = 4 }]
// grid = "cdiv(words, block)"
// block = 128
// require = ["words % 4 == 0"]
// reference = "reference.py:unpack_nibbles"
// [args]
// packed = "in uint32[words]"
// scale = "in float32[words // 4] ~ uniform(0.01, 0.1)"
// weight = "out float32[words * 8]"
// words = "int32"
// ///
template <int Bits, int PerWord>
__device__ float nibble(uint32_t word, int which) {
  static_assert(Bits * PerWord == 32, "a word is full");
  return float((word >> (which * Bits)) & ((1u << Bits) - 1));
}

__global__ void unpackNibbles(const uint32_t* packed, const float* scale, float* weight, int words) {
  const int w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w < words) {
    for (int i = 0; i < 8; ++i)
      weight[w * 8 + i] = (nibble<4, 8>(packed[w], i) - 8.0) * scale[w / 4];
  }
}
