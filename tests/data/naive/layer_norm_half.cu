#include <cuda_fp16.h>
// fp16 activations, a thread per token. Works, slow in the profile.

// /// kernelmate
// sizes = [{ tokens = 512, hidden = 256 }, { tokens = 45, hidden = 77 }, { tokens = 1, hidden = 1 }]
// grid = "cdiv(tokens, 64)"
// block = 64
// require = ["hidden > 0"]
// reference = "reference.py:layer_norm_half"
// tolerance = { rtol = 4e-3, atol = 4e-3 }
// [args]
// out = "out float16[tokens, hidden]"
// in = "in float16[tokens, hidden] ~ normal"
// gain = "in float16[hidden] ~ normal"
// tokens = "int32"
// hidden = "int32"
// ///
__global__ void layer_norm_f16(__half* out, const __half* in, const __half* gain, int tokens, int hidden)
{
    const int token = blockDim.x * blockIdx.x + threadIdx.x;
    if (token < tokens) {
        const __half* src = in + token * hidden;
        __half* dst = out + token * hidden;
        float mean = 0.0f;
        for (int h = 0; h < hidden; ++h) mean += __half2float(src[h]);
        mean /= hidden;
        float var = 0.0f;
        for (int h = 0; h < hidden; ++h) {
            const float d = __half2float(src[h]) - mean;
            var += d * d;
        }
        var /= hidden;
        for (int h = 0; h < hidden; ++h) {
            const float normed = (__half2float(src[h]) - mean) / sqrtf(var + 1e-5f);
            dst[h] = __float2half(normed * __half2float(gain[h]));
        }
    }
}
