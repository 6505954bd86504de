// The counts are added to and never cleared, neither by a kernel nor by the host.
// /// kernelmate
// pipeline = "bin_offsets"
// sizes = [{ n = 5000, bins = 64 }, { n = 77, bins = 256 }]
// reference = "../reference.py:offsets"
// require = ["bins <= 1024", "bins >= 1"]
// [args]
// keys = "in int32[n] ~ integers(0, bins)"
// counts = "scratch int32[bins]"
// starts = "out int32[bins]"
// n = "int32"
// bins = "int32"
// [[stages]]
// kernel = "histogram"
// grid = "cdiv(n, block)"
// block = 256
// reference = "np.bincount(keys, minlength=bins)"
// [[stages]]
// kernel = "exclusive_scan"
// grid = 1
// block = 1024
// ///

__global__ void histogram(const int* keys, int* counts, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[keys[i]], 1);
}

__global__ void exclusive_scan(const int* counts, int* starts, int bins) {
  __shared__ int sums[2][1024];
  const int i = threadIdx.x;
  int now = 0;
  sums[now][i] = i < bins ? counts[i] : 0;
  __syncthreads();
  for (int reach = 1; reach < 1024; reach *= 2) {
    sums[1 - now][i] = sums[now][i] + (i >= reach ? sums[now][i - reach] : 0);
    now = 1 - now;
    __syncthreads();
  }
  if (i < bins) starts[i] = sums[now][i] - counts[i];
}
