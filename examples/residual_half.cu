// Residual connection with a per-channel gate, in half precision storage and float arithmetic, as in DiT blocks.
#include <cuda_fp16.h>

// /// kernelmate
// sizes = [{ rows = 128, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = "rows"
// block = 256
// reference = "reference.py:gated_residual"
// [args]
// hidden = "inout float16[rows, cols] ~ normal"
// branch = "in float16[rows, cols] ~ normal"
// gate = "in float16[cols] ~ normal"
// cols = "int32"
// ///
__global__ void gated_residual(__half* hidden, const __half* branch, const __half* gate, int cols) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    const size_t i = (size_t)blockIdx.x * cols + c;
    hidden[i] = __float2half(__half2float(hidden[i]) + __half2float(gate[c]) * __half2float(branch[i]));
  }
}
