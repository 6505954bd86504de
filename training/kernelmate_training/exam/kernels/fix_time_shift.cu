// Differences of neighbouring samples; the first has no neighbour and stays.

// /// kernelmate
// sizes = [{ n = 10000 }, { n = 777 }, { n = 1 }]
// grid = "n // block + 1"
// block = 128
// reference = "reference.py:time_shift"
// [args]
// in = "in float32[n] ~ normal"
// out = "out float32[n]"
// n = "int32"
// ///
__global__ void difference(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
    {
        if (i == 0) out[i] = in[i];
        else out[i] = in[i] - in[i - 1];
    }
}
