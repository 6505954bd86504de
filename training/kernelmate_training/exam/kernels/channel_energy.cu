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
    __shared__ float partial[THREADS * 2];
    const short *mine = pcm + (long)blockIdx.x * samples;

    float e = 0.f;
    for (int i = threadIdx.x; i < samples; i += THREADS) {
        float value = mine[i] / 32768.0f;
        e += value * value;
    }
    partial[threadIdx.x] = e;
    partial[threadIdx.x + THREADS] = 0.f;
    __syncthreads();

    for (int step = 1; step < THREADS; step *= 2) {
        if (threadIdx.x % (2 * step) == 0)
            partial[threadIdx.x] += partial[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        energy[blockIdx.x] = partial[0];
}
