// The reciprocal deviation lacks its square root; the stage's own reference finds it.
// /// kernelmate
// pipeline = "layernorm_in_two"
// sizes = [{ rows = 40, cols = 256 }, { rows = 3, cols = 77 }]
// reference = "../reference.py:layernorm"
// require = ["cols >= 1"]
// [args]
// x = "in float32[rows, cols]"
// gain = "in float32[cols]"
// shift = "in float32[cols]"
// mean = "scratch float32[rows]"
// rstd = "scratch float32[rows]"
// y = "out float32[rows, cols]"
// [[stages]]
// kernel = "statistics<128>"
// grid = "rows"
// block = 128
// reference = "np.mean(x, axis=1), 1 / np.sqrt(np.var(x, axis=1) + 1e-5)"
// [[stages]]
// kernel = "normalise"
// grid = "rows"
// block = 128
// ///

template <int kThreads>
__global__ void statistics(const float* __restrict__ x, float* mean, float* rstd, int cols) {
  __shared__ float tree[kThreads];
  const float* row = x + blockIdx.x * cols;
  float total = 0.0f;
  for (int pass = 0; pass < 2; ++pass) {
    const float center = pass == 0 ? 0.0f : total / cols;
    float value = 0.0f;
    for (int c = threadIdx.x; c < cols; c += kThreads) {
      const float v = row[c] - center;
      value += pass == 0 ? v : v * v;
    }
    tree[threadIdx.x] = value;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
      __syncthreads();
    }
    if (pass == 0) total = tree[0];
    if (pass == 1 && threadIdx.x == 0) {
      mean[blockIdx.x] = center;
      rstd[blockIdx.x] = 1.0f / (tree[0] / cols + 1e-5f);
    }
    __syncthreads();
  }
}

__global__ void normalise(const float* x, const float* gain, const float* shift, const float* mean, const float* rstd,
                          float* y, int cols) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const int i = blockIdx.x * cols + c;
    y[i] = (x[i] - mean[blockIdx.x]) * rstd[blockIdx.x] * gain[c] + shift[c];
  }
}
