#include <cstdint>
// FNV-1a of fixed-size records (32 bytes each).

// /// kernelmate
// sizes = [{ records = 6144 }, { records = 301 }, { records = 1 }]
// grid = "cdiv(records, 64)"
// block = 64
// reference = "reference.py:record_hash"
// [args]
// data = "in uint8[records, 32] ~ integers(0, 256)"
// hash = "out uint32[records]"
// records = "int32"
// ///
__global__ void fnv1a(const std::uint8_t* data, std::uint32_t* hash, int records) {
  __shared__ std::uint8_t staged[64 * 33];
  const int first = blockIdx.x * 64;
  const int bytes = min(64, records - first) * 32;
#pragma unroll 8
  for (int i = threadIdx.x; i < bytes; i += 64) staged[i / 32 * 33 + i % 32] = data[first * 32 + i];
  __syncthreads();
  const int r = first + threadIdx.x;
  if (r >= records) return;
  std::uint32_t h = 2166136261u;
#pragma unroll
  for (int byte = 0; byte < 32; ++byte) {
    h ^= staged[threadIdx.x * 33 + byte];
    h *= 16777619u;
  }
  hash[r] = h;
}
