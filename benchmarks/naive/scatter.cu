// Elements by number, and counts, one thread for each, as first written.

// /// kernelmate
// sizes = [{ n = 67108864 }, { n = 4099 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "reference.py:byte_histogram"
// [args]
// x = "in uint8[n]"
// counts = "inout uint32[256] ~ zeros"
// n = "int32"
// ///
__global__ void byte_histogram(const unsigned char* x, unsigned* counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[x[i]], 1u);
}

// /// kernelmate
// sizes = [{ n = 65536, rows = 32768, dim = 256 }, { n = 37, rows = 19, dim = 61 }, { n = 1, rows = 1, dim = 1 }]
// grid = "n"
// block = 64
// require = ["rows > 0"]
// reference = "reference.py:gather_scale"
// [args]
// table = "in float32[rows, dim]"
// index = "in int32[n] ~ integers(0, rows)"
// scale = "in float32[n]"
// out = "out float32[n, dim]"
// dim = "int32"
// ///
__global__ void gather_scale(const float* table, const int* index, const float* scale, float* out, int dim) {
  for (int d = threadIdx.x; d < dim; d += blockDim.x)
    out[(size_t)blockIdx.x * dim + d] = table[(size_t)index[blockIdx.x] * dim + d] * scale[blockIdx.x];
}

// /// kernelmate
// sizes = [{ bags = 16384, rows = 32768, dim = 256 }, { bags = 37, rows = 19, dim = 61 }, { bags = 1, rows = 1, dim = 1 }]
// grid = "bags"
// block = 64
// require = ["rows > 0"]
// reference = "reference.py:bag_mean"
// [args]
// table = "in float32[rows, dim]"
// index = "in int32[bags, 8] ~ integers(0, rows)"
// out = "out float32[bags, dim]"
// dim = "int32"
// ///
__global__ void bag_mean(const float* table, const int* index, float* out, int dim) {
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float s = 0.0f;
    for (int k = 0; k < 8; k++) s += table[(size_t)index[blockIdx.x * 8 + k] * dim + d];
    out[(size_t)blockIdx.x * dim + d] = s / 8.0f;
  }
}

// /// kernelmate
// sizes = [{ rows = 1000000, entries = 10000000 }, { rows = 37, entries = 211 }, { rows = 1, entries = 1 }]
// grid = "cdiv(rows, 256)"
// block = 256
// reference = "reference.py:csr_row_mean"
// inputs = "reference.py:csr_inputs"
// [args]
// values = "in float32[entries]"
// row_ptr = "in int32[rows + 1]"
// out = "out float32[rows]"
// rows = "int32"
// ///
__global__ void csr_row_mean(const float* values, const int* row_ptr, float* out, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int k = row_ptr[r]; k < row_ptr[r + 1]; k++) s += values[k];
  out[r] = s / max(row_ptr[r + 1] - row_ptr[r], 1);
}

// /// kernelmate
// sizes = [{ rows = 1000000, slots = 24, columns = 1000000 }, { rows = 37, slots = 5, columns = 19 }, { rows = 1, slots = 1, columns = 1 }]
// grid = "cdiv(rows, 256)"
// block = 256
// require = ["columns > 0"]
// reference = "reference.py:ell_matvec"
// [args]
// values = "in float32[rows, slots]"
// column = "in int32[rows, slots] ~ integers(0, columns)"
// x = "in float32[columns]"
// out = "out float32[rows]"
// rows = "int32"
// slots = "int32"
// ///
__global__ void ell_matvec(const float* values, const int* column, const float* x, float* out, int rows, int slots) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  for (int k = 0; k < slots; k++) s += values[(size_t)r * slots + k] * x[column[(size_t)r * slots + k]];
  out[r] = s;
}
