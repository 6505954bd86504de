// Sampling of a diffusion model: each predicted image is divided by its largest absolute value where that is above 1.
// A block takes an image.

// /// kernelmate
// sizes = [{ images = 8, numel = 768 }, { images = 5, numel = 333 }, { images = 1, numel = 1 }]
// grid = "images"
// block = 256
// reference = "reference.py:dynamic_threshold"
// [args]
// x0 = "in float32[images, numel] ~ normal"
// out = "out float32[images, numel]"
// numel = "int32"
// ///
__global__ void dynamic_threshold(const float *x0, float *out, int numel)
{
    __shared__ float of_warp[8];
    const float *image = x0 + blockIdx.x * numel;
    float ceiling = 1.0f;
    for (int e = threadIdx.x; e < numel; e += blockDim.x)
        ceiling = fmaxf(ceiling, fabsf(image[e]));
    for (int d = 16; d; d >>= 1)
        ceiling = fmaxf(ceiling, __shfl_xor_sync(0xffffffffu, ceiling, d));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = ceiling;
    __syncthreads();
    for (int w = 0; w < 8; ++w)
        ceiling = fmaxf(ceiling, of_warp[w]);
    for (int e = threadIdx.x; e < numel; e += blockDim.x)
        out[blockIdx.x * numel + e] = image[e] / ceiling;
}
