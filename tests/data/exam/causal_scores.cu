// Scaled attention scores with causal mask, one head. Query index in x, key index in y.

// /// kernelmate
// sizes = [{ T = 96, D = 64 }, { T = 37, D = 24 }, { T = 1, D = 1 }]
// grid = ["cdiv(T, 16)", "cdiv(T, 16)"]
// block = [16, 16]
// require = ["D > 0"]
// reference = "reference.py:causal_scores"
// [args]
// Q = "in float32[T, D] ~ normal"
// K = "in float32[T, D] ~ normal"
// S = "out float32[T, T]"
// T = "int32"
// D = "int32"
// ///
__global__ void qk_scores(const float* __restrict__ Q, const float* __restrict__ K, float* __restrict__ S, int T, int D)
{
  __shared__ float q[16][17], k[16][17];
  const int qi = blockIdx.y * 16 + threadIdx.y, kj = blockIdx.x * 16 + threadIdx.x;
  float s = 0.f;
  if (blockIdx.x <= blockIdx.y) {
    for (int base = 0; base < D; base += 16) {
      const int d = base + threadIdx.x, krow = blockIdx.x * 16 + threadIdx.y;
      q[threadIdx.y][threadIdx.x] = qi < T && d < D ? Q[qi * D + d] : 0.f;
      k[threadIdx.y][threadIdx.x] = krow < T && d < D ? K[krow * D + d] : 0.f;
      __syncthreads();
      for (int i = 0; i < 16; i++) s = fmaf(q[threadIdx.y][i], k[threadIdx.x][i], s);
      __syncthreads();
    }
  }
  if (qi < T && kj < T) S[qi * T + kj] = kj > qi ? -1.0e9f : s * rsqrtf((float)D);
}
