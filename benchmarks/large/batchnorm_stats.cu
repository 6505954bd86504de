// Mean and variance of each channel over the batch, as batch normalisation needs them; one block per channel.

#define N 256

// /// kernelmate
// sizes = [
//   { batch = 32, channels = 64, pixels = 16384 },
//   { batch = 3, channels = 5, pixels = 130 },
//   { batch = 1, channels = 1, pixels = 1 },
// ]
// grid = "channels"
// block = 256
// require = ["batch > 0", "pixels > 0"]
// reference = "reference.py:batchnorm_stats"
// [args]
// x = "in float32[batch, channels, pixels]"
// mean = "out float32[channels]"
// var = "out float32[channels]"
// batch = "int32"
// channels = "int32"
// pixels = "int32"
// ///
__global__ void batchnorm_stats(const float* x, float* mean, float* var, int batch, int channels, int pixels) {
  __shared__ float buffer[N];
  int c = blockIdx.x;
  int tid = threadIdx.x;

  float sum = 0.0f;
  for (int b = 0; b < batch; b++) {
    for (int p = tid; p < pixels; p += N) sum += x[((size_t)b * channels + c) * pixels + p];
  }
  buffer[tid] = sum;
  __syncthreads();
  for (int s = N / 2; s > 0; s /= 2) {
    if (tid < s) buffer[tid] += buffer[tid + s];
    __syncthreads();
  }
  float m = buffer[0] / ((float)batch * pixels);
  __syncthreads();

  float squares = 0.0f;
  for (int b = 0; b < batch; b++) {
    for (int p = tid; p < pixels; p += N) {
      float d = x[((size_t)b * channels + c) * pixels + p] - m;
      squares += d * d;
    }
  }
  buffer[tid] = squares;
  __syncthreads();
  for (int s = N / 2; s > 0; s /= 2) {
    if (tid < s) buffer[tid] += buffer[tid + s];
    __syncthreads();
  }
  if (tid == 0) {
    mean[c] = m;
    var[c] = buffer[0] / ((float)batch * pixels);
  }
}
