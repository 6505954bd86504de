#include <cstdint>
// FNV-1a of fixed-size records (32 bytes each).

// /// kernelmate
// sizes = [{ records = 6144 }, { records = 301 }, { records = 1 }]
// grid = "cdiv(records, block)"
// block = 256
// reference = "reference.py:record_hash"
// [args]
// data = "in uint8[records, 32] ~ integers(0, 256)"
// hash = "out uint32[records]"
// records = "int32"
// ///
__global__ void fnv1a(const std::uint8_t* data, std::uint32_t* hash, int records) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= records) return;
  std::uint32_t h = 2166136261u;
#pragma unroll 1
  for (int byte = 0; byte < 32; ++byte) {
    h ^= data[r * 32 + byte];
    h *= 16777619u;
  }
  hash[r] = h;
}
