// Scaled attention scores with causal mask, one head. Query index in x, key index in y.

// /// kernelmate
// sizes = [{ T = 96, D = 64 }, { T = 37, D = 24 }, { T = 1, D = 1 }]
// grid = ["cdiv(T, block_x)", "cdiv(T, block_y)"]
// block = [32, 4]
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
  const int qi = blockIdx.x * blockDim.x + threadIdx.x;
  const int kj = blockIdx.y * blockDim.y + threadIdx.y;
  if (qi >= T || kj >= T) return;
  if (kj > qi) { S[qi * T + kj] = -1.0e9f; return; }
  float s = 0.f;
  for (int d = 0; d < D; d++) s = fmaf(Q[qi * D + d], K[kj * D + d], s);
  S[qi * T + kj] = s * rsqrtf((float)D);
}
