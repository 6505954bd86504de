// The thread's own array is filled where the key says, and read elsewhere.
// expect: uninitialised-local

// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// keys = "in int32[n] ~ integers(0, 8)"
// y = "out int32[n]"
// n = "int32"
// ///
__global__ void local_never_written(const int* keys, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int seen[8];
  for (int k = 0; k < keys[i]; ++k) seen[k] = k;
  y[i] = seen[keys[(i + 1) % n]];
}
