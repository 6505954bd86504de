// Pairs are loaded from shared memory at odd elements.
// expect: misaligned-access

// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 128
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void misaligned_shared(const float* x, float* y, int n) {
  __shared__ float row[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = row[threadIdx.x + 128] = i < n ? x[i] : 0.0f;
  __syncthreads();
  const float2 pair = *reinterpret_cast<const float2*>(row + 2 * (threadIdx.x / 2) + 1);
  if (i < n) y[i] = pair.x + pair.y;
}
