// Bias and QuickGELU (x * sigmoid(1.702 x), as in CLIP) on bfloat16 activations, float arithmetic.
#include <cuda_bf16.h>

// /// kernelmate
// sizes = [{ rows = 128, cols = 1024 }, { rows = 37, cols = 853 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, block)", "rows"]
// block = 256
// reference = "reference.py:bias_gelu"
// [args]
// x = "in bfloat16[rows, cols] ~ normal"
// bias = "in bfloat16[cols] ~ normal"
// y = "out bfloat16[rows, cols]"
// cols = "int32"
// ///
__global__ void bias_gelu(const __nv_bfloat16* x, const __nv_bfloat16* bias, __nv_bfloat16* y, int cols) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const size_t i = (size_t)blockIdx.y * cols + c;
  const float v = __bfloat162float(x[i]) + __bfloat162float(bias[c]);
  y[i] = __float2bfloat16(v / (1.0f + expf(-1.702f * v)));
}
