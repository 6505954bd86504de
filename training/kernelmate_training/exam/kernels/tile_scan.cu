// Inclusive scan of every tile of 512 integers (Hillis and Steele), ping-pong buffers.
constexpr int kTile = 512;

// /// kernelmate
// sizes = [{ count = 65536 }, { count = 3000 }, { count = 1 }]
// grid = "cdiv(count, block)"
// block = 512
// reference = "reference.py:tile_scan"
// [args]
// values = "in int32[count] ~ integers(0, 50)"
// sums = "out int32[count]"
// count = "int32"
// ///
__global__ void scanTiles(const int* __restrict__ values, int* __restrict__ sums, int count) {
  __shared__ int buffer[2][kTile];
  const int lane = threadIdx.x;
  const int global = blockIdx.x * kTile + lane;
  int current = 0;
  buffer[0][lane] = global < count ? values[global] : 0;
  __syncthreads();
  for (int offset = 1; offset < kTile; offset <<= 1) {
    const int other = 1 - current;
    if (lane >= offset) {
      buffer[other][lane] = buffer[current][lane] + buffer[current][lane - offset];
    } else {
      buffer[other][lane] = buffer[current][lane];
    }
    __syncthreads();
    current = other;
  }
  if (global < count) sums[global] = buffer[current][lane];
}
