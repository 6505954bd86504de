// Values added to the bins that their indices name, one atomic addition each.

// /// kernelmate
// sizes = [{ n = 16777216, bins = 1048576 }, { n = 5003, bins = 97 }, { n = 1, bins = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// require = ["bins > 0"]
// reference = "reference.py:scatter_add"
// [args]
// index = "in int32[n] ~ integers(0, bins)"
// values = "in float32[n]"
// out = "inout float32[bins] ~ zeros"
// n = "int32"
// ///
__global__ void scatter_add(const int* index, const float* values, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&out[index[i]], values[i]);
  }
}
