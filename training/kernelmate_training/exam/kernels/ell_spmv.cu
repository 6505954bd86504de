// ELLPACK sparse product: every row has `slots` places, unused ones have column -1.
typedef float real;

// /// kernelmate
// sizes = [{ rows = 2048, slots = 24, cols = 1500 }, { rows = 87, slots = 5, cols = 40 }, { rows = 1, slots = 1, cols = 1 }]
// grid = "cdiv(rows, 256)"
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
   int r = blockIdx.x * blockDim.x + threadIdx.x;
   if (r < rows) {
      real dot = 0;
      for (int s = 0; s < slots; s++) {
         int c = column[r * slots + s];
         if (c >= 0)
            dot += value[r * slots + s] * vec[c];
      }
      result[r] = dot;
   }
}
