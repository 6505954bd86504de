// Sampling of a diffusion model: each predicted image is divided by its largest absolute value where that is above 1.
// A block takes an image.

// /// kernelmate
// sizes = [{ images = 8, numel = 768 }, { images = 5, numel = 333 }, { images = 1, numel = 1 }]
// grid = "images"
// block = 128
// reference = "reference.py:dynamic_threshold"
// [args]
// x0 = "in float32[images, numel] ~ normal"
// out = "out float32[images, numel]"
// numel = "int32"
// ///
__global__ void dynamic_threshold(const float *x0, float *out, int numel)
{
    const float *image = x0 + blockIdx.x * numel;

    float ceiling = 1.0f;
    for (int e = 0; e < numel; ++e)
        ceiling = max(ceiling, abs(image[e]));

    for (int e = threadIdx.x; e < numel; e += blockDim.x)
        out[blockIdx.x * numel + e] = image[e] / ceiling;
}
