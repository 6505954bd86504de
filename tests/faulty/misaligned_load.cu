// Four floats are loaded at once from an address that is no multiple of sixteen bytes.
// expect: misaligned-access

// /// kernelmate
// sizes = [{ n = 1025 }]
// grid = "cdiv(n - 1, 4 * block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void misaligned_load(const float* x, float* y, int n) {
  const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 4 > n - 1) return;
  const float4 four = *reinterpret_cast<const float4*>(x + 1 + i);
  y[i] = four.x, y[i + 1] = four.y, y[i + 2] = four.z, y[i + 3] = four.w;
}
