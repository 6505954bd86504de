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
  __shared__ int of_warp[16];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int global = blockIdx.x * kTile + threadIdx.x;
  int sum = global < count ? values[global] : 0;
  for (int offset = 1; offset < 32; offset <<= 1) {
    const int before = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int base = 0;
  for (int w = 0; w < warp; ++w) base += of_warp[w];
  if (global < count) sums[global] = sum + base;
}
