// asked: time
// /// kernelmate
// sizes = [{ n = 2000 }]
// grid = "cdiv(n, block)"
// block = 256
// [args]
// a = "in uint8[n] ~ integers(0, 12)"
// b = "in uint8[n] ~ integers(0, 5)"
// counts = "inout float32[12, 5] ~ zeros"
// n = "int32"
// ///
__global__ void histogram(const unsigned char* a, const unsigned char* b, float* counts, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&counts[a[i] * 5 + b[i]], 1.0f);
  }
}
