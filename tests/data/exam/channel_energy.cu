// Signal energy of each channel of a recording (samples are int16 PCM).
#define THREADS 256

// /// kernelmate
// sizes = [{ channels = 96, samples = 4000 }, { channels = 7, samples = 613 }, { channels = 1, samples = 1 }]
// grid = "channels"
// block = 256
// reference = "reference.py:channel_energy"
// [args]
// pcm = "in int16[channels, samples] ~ integers(-2000, 2000)"
// energy = "out float32[channels]"
// samples = "int32"
// ///
__global__ void energy_kernel(const short *pcm, float *energy, int samples)
{
    __shared__ float partial[THREADS / 32];
    const short *mine = pcm + (long)blockIdx.x * samples;
    float e = 0.f;
#pragma unroll 4
    for (int i = threadIdx.x; i < samples; i += THREADS) {
        float value = mine[i] * (1.0f / 32768.0f);
        e += value * value;
    }
    for (int d = 16; d; d >>= 1) e += __shfl_xor_sync(~0u, e, d);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = e;
    __syncthreads();
    if (threadIdx.x < 32) {
        e = threadIdx.x < THREADS / 32 ? partial[threadIdx.x] : 0.f;
        for (int d = 4; d; d >>= 1) e += __shfl_xor_sync(~0u, e, d);
        if (threadIdx.x == 0) energy[blockIdx.x] = e;
    }
}
