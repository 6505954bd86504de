// Energy of a signal: everybody adds to one number.

// /// kernelmate
// sizes = [{ n = 98304 }, { n = 2003 }, { n = 1 }]
// grid = "cdiv(n, 384)"
// block = 384
// reference = "reference.py:sum_of_squares"
// [args]
// signal = "in float32[n] ~ normal"
// energy = "inout float32[1] ~ zeros"
// n = "int64"
// ///
__global__ void sum_of_squares(const float* signal, float* energy, long long n) {
  long long gid = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (gid < n) {
    float s = signal[gid];
    atomicAdd(&energy[0], s * s);
  }
}
