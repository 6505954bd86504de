// ELLPACK sparse product: every row has `slots` places, unused ones have column -1.
typedef float real;

// /// kernelmate
// sizes = [{ rows = 2048, slots = 24, cols = 1500 }, { rows = 87, slots = 5, cols = 40 }, { rows = 1, slots = 1, cols = 1 }]
// grid = "cdiv(rows, 8)"
// block = 256
// require = ["rows > 0", "slots > 0", "cols > 0"]
// reference = "reference.py:ell_spmv"
// [args]
// column = "in int32[rows, slots] ~ integers(-1, cols)"
// value = "in float32[rows, slots] ~ normal"
// vec = "in float32[cols] ~ normal"
// result = "out float32[rows]"
// rows = "int32"
// slots = "int32"
// ///
__global__ void ellpack(const int *column, const real *value, const real *vec, real *result, int rows, int slots)
{
   int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
   if (r >= rows) return;
   real dot = 0;
   for (int s = lane; s < slots; s += 32) {
      int c = column[r * slots + s];
      if (c >= 0) dot += value[r * slots + s] * vec[c];
   }
   for (int d = 16; d; d >>= 1) dot += __shfl_xor_sync(~0u, dot, d);
   if (lane == 0) result[r] = dot;
}
