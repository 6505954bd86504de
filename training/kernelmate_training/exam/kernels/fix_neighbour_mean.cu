// Mean of each sample and its two neighbours, zero outside; the block's samples are staged in shared memory.

// /// kernelmate
// sizes = [{ n = 9000 }, { n = 515 }, { n = 1 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "reference.py:neighbour_mean"
// [args]
// signal = "in float32[n] ~ normal"
// smooth = "out float32[n]"
// n = "int32"
// ///
__global__ void neighbourMean(const float *signal, float *smooth, int n)
{
    __shared__ float cache[130];
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;

    cache[t + 1] = i < n ? signal[i] : 0.0f;
    if (t < 2) {
        int edge = t == 0 ? (int)(blockIdx.x * 128) - 1 : (int)(blockIdx.x * 128) + 128;
        cache[t * 129] = edge >= 0 && edge < n ? signal[edge] : 0.0f;
        __syncthreads();
    }
    if (i < n)
        smooth[i] = (cache[t] + cache[t + 1] + cache[t + 2]) / 3.0f;
}
