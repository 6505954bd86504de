// Reduction as in the first slide of every course.

// /// kernelmate
// sizes = [{ n = 131072 }, { n = 5003 }, { n = 1 }]
// grid = "cdiv(n, 512)"
// block = 512
// reference = "reference.py:sum_interleaved"
// [args]
// g_idata = "in float32[n]"
// g_odata = "out float32[cdiv(n, 512)]"
// n = "uint32"
// ///
__global__ void reduce0(const float *g_idata, float *g_odata, unsigned int n) {
  __shared__ float sdata[1024];
  // each thread loads one element from global to shared mem
  unsigned int tid = threadIdx.x;
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  sdata[tid] = (i < n) ? g_idata[i] : 0;
  __syncthreads();

  // do reduction in shared mem
  for (unsigned int s = 1; s < blockDim.x; s *= 2) {
    if (tid % (2 * s) == 0) {
      sdata[tid] += sdata[tid + s];
    }
    __syncthreads();
  }

  // write result for this block to global mem
  if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
