// Four lanes per row, so that a warp reads eight neighbouring rows together.

// /// kernelmate
// sizes = [{ rows = 1000000, entries = 10000000 }, { rows = 37, entries = 211 }, { rows = 1, entries = 1 }]
// grid = "cdiv(rows, 64)"
// block = 256
// reference = "../naive/reference.py:csr_row_mean"
// inputs = "../naive/reference.py:csr_inputs"
// [args]
// values = "in float32[entries]"
// row_ptr = "in int32[rows + 1]"
// out = "out float32[rows]"
// rows = "int32"
// ///
__global__ void csr_row_mean(const float* __restrict__ values, const int* __restrict__ row_ptr, float* __restrict__ out,
                             int rows) {
  int r = blockIdx.x * 64 + threadIdx.x / 4, lane = threadIdx.x % 4;
  int first = r < rows ? row_ptr[r] : 0, last = r < rows ? row_ptr[r + 1] : 0;
  float s = 0.0f;
  for (int k = first + lane; k < last; k += 4) s += values[k];
  s += __shfl_xor_sync(~0u, s, 1);
  s += __shfl_xor_sync(~0u, s, 2);
  if (lane == 0 && r < rows) out[r] = s / max(last - first, 1);
}
