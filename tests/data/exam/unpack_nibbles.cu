#include <cstdint>
// 4 bit weights, eight in a word, to float: (nibble - 8) * scale of its group of 32.

// /// kernelmate
// sizes = [{ words = 16384 }, { words = 404 }, { words = 4 }]
// grid = "cdiv(words * 8, block)"
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
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < words * 8) weight[at] = (nibble<4, 8>(packed[at / 8], at % 8) - 8.0f) * scale[at / 32];
}
