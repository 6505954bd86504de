// Mean and variance per row with a block per row; shared arrays sized for the largest block we ever launch.
#define MAX_THREADS 1024

// /// kernelmate
// sizes = [{ R = 192, L = 2048 }, { R = 31, L = 777 }, { R = 1, L = 1 }]
// grid = "R"
// block = 128
// require = ["L > 0"]
// reference = "reference.py:row_variance"
// [args]
// X = "in float32[R, L] ~ normal"
// MU = "out float32[R]"
// VAR = "out float32[R]"
// L = "int32"
// ///
__global__ void RowVariance(const float* X, float* MU, float* VAR, int L) {
  __shared__ float S[MAX_THREADS];
  __shared__ float Q[MAX_THREADS];
  int T = threadIdx.x;
  float acc = 0.0f;
  for (int k = T; k < L; k += blockDim.x)
    acc += X[blockIdx.x * L + k];
  S[T] = acc;
  __syncthreads();
  for (int half = blockDim.x >> 1; half >= 1; half >>= 1) {
    if (T < half) {
      S[T] = S[T] + S[T + half];
    }
    __syncthreads();
  }
  float mean = S[0] / L;
  float acc2 = 0.0f;
  for (int k = T; k < L; k += blockDim.x) {
    float dev = X[blockIdx.x * L + k] - mean;
    acc2 += dev * dev;
  }
  Q[T] = acc2;
  __syncthreads();
  for (int half = blockDim.x >> 1; half >= 1; half >>= 1) {
    if (T < half) {
      Q[T] = Q[T] + Q[T + half];
    }
    __syncthreads();
  }
  if (T == 0) {
    MU[blockIdx.x] = mean;
    VAR[blockIdx.x] = Q[0] / L;
  }
}
