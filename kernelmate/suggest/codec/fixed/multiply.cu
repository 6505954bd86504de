// asked: global_bytes
// /// kernelmate
// sizes = [{ m = 96, n = 80, k = 64 }]
// grid = ["cdiv(m, 16)", "cdiv(n, 16)"]
// block = [16, 16]
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < m && j < n) {
    c[i * n + j] = 0.0f;
    for (int t = 0; t < k; t++) c[i * n + j] += a[i * k + t] * b[t * n + j];
  }
}
