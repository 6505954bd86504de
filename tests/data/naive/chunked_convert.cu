// int16 samples to float, every thread converts ELEMS neighbouring ones.
constexpr int ELEMS = 8;

// /// kernelmate
// sizes = [{ n = 262144 }, { n = 10007 }, { n = 1 }]
// grid = "cdiv(n, 1024)"
// block = 128
// reference = "reference.py:chunked_convert"
// [args]
// pcm = "in int16[n]"
// wave = "out float32[n]"
// n = "int32"
// ///
__global__ void convert_pcm(const short* pcm, float* wave, int n) {
  const int worker = blockIdx.x * blockDim.x + threadIdx.x;
  for (int e = 0; e < ELEMS; ++e) {
    const int at = worker * ELEMS + e;
    if (at < n) wave[at] = pcm[at] / 32768.0f;
  }
}
