// Style transfer: Gram matrix of the features of a layer, 16 x 16 entries per block. The patches were sized for
// another GPU and are much larger than what a block uses.

// /// kernelmate
// sizes = [{ features = 64, pixels = 128 }, { features = 21, pixels = 45 }, { features = 1, pixels = 1 }]
// grid = ["cdiv(features, 16)", "cdiv(features, 16)"]
// block = [16, 16]
// reference = "F @ F.T"
// [args]
// F = "in float32[features, pixels] ~ normal"
// G = "out float32[features, features]"
// features = "int32"
// pixels = "int32"
// ///
__global__ void gramPatch(const float* F, float* G, int features, int pixels) {
  __shared__ float left[64][65];
  __shared__ float right[64][65];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int i = blockIdx.y * 16 + ty, j = blockIdx.x * 16 + tx;
  float g = 0.0f;
  for (int base = 0; base < pixels; base += 16) {
    left[ty][tx] = i < features && base + tx < pixels ? F[i * pixels + base + tx] : 0.0f;
    right[ty][tx] = blockIdx.x * 16 + ty < features && base + tx < pixels ? F[(blockIdx.x * 16 + ty) * pixels + base + tx] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) g += left[ty][k] * right[tx][k];
    __syncthreads();
  }
  if (i < features && j < features) G[i * features + j] = g;
}
