// 2x2 max pooling, NHWC. One thread per output value; the flat index counts channels slowest.

// /// kernelmate
// sizes = [{ batch = 4, oh = 24, ow = 24, channels = 64 }, { batch = 1, oh = 5, ow = 7, channels = 3 }, { batch = 1, oh = 1, ow = 1, channels = 1 }]
// grid = "cdiv(batch * oh * ow * channels, block)"
// block = 256
// reference = "reference.py:max_pool"
// [args]
// in = "in float32[batch, oh * 2, ow * 2, channels] ~ normal"
// out = "out float32[batch, oh, ow, channels]"
// batch = "int32"
// oh = "int32"
// ow = "int32"
// channels = "int32"
// ///
__global__ void maxpool2x2(const float *in, float *out, int batch, int oh, int ow, int channels)
{
    int flat = blockIdx.x * blockDim.x + threadIdx.x;
    if (flat >= batch * oh * ow * channels) return;

    int x = flat % ow;
    int y = flat / ow % oh;
    int n = flat / (ow * oh) % batch;
    int c = flat / (ow * oh * batch);

    int iw = ow * 2;
    const float *corner = in + ((n * oh * 2 + y * 2) * iw + x * 2) * channels + c;
    float m = corner[0];
    m = fmaxf(m, corner[channels]);
    m = fmaxf(m, corner[iw * channels]);
    m = fmaxf(m, corner[iw * channels + channels]);
    out[((n * oh + y) * ow + x) * channels + c] = m;
}
