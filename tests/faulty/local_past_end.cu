// An index that comes from memory leaves the thread's own array of four elements.
// expect: out-of-bounds-write

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// keys = "in int32[n] ~ integers(0, 64)"
// y = "out int32[n]"
// n = "int32"
// ///
__global__ void local_past_end(const int* keys, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int counts[4] = {0, 0, 0, 0};
  counts[keys[i]] += 1;
  y[i] = counts[0] + counts[1] * 2 + counts[2] * 3 + counts[3] * 4;
}
