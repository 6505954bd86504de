// A product with a long inner dimension: each slice of it is summed by blocks of its own, and a second kernel adds the
// slices up.
// /// kernelmate
// pipeline = "split_k_product"
// sizes = [{ m = 24, n = 40, k = 300 }, { m = 5, n = 3, k = 17 }]
// reference = "../reference.py:product"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// slices = "scratch float32[4, m, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// [[stages]]
// kernel = "slice_product"
// grid = ["cdiv(n, 16)", "cdiv(m, 16)", 4]
// block = [16, 16]
// [[stages]]
// kernel = "add_slices"
// grid = "cdiv(m * n, block)"
// block = 128
// args = { count = "m * n" }
// reference = "np.sum(slices, axis=0)"
// ///

__global__ void slice_product(const float* a, const float* b, float* slices, int m, int n, int k) {
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= m || col >= n) return;
  const int each = (k + gridDim.z - 1) / gridDim.z, first = blockIdx.z * each;
  float value = 0.0f;
  for (int i = first; i < min(first + each, k); ++i) value += a[row * k + i] * b[i * n + col];
  slices[(blockIdx.z * m + row) * n + col] = value;
}

__global__ void add_slices(const float* slices, float* c, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = 0.0f;
  for (int s = 0; s < 4; ++s) value += slices[s * count + i];
  c[i] = value;
}
