// adds a bias per channel and clips at zero; every index is 64 bit "to be on the safe side"

// /// kernelmate
// sizes = [{ n = 2, c = 24, h = 24, w = 24 }, { n = 2, c = 5, h = 9, w = 7 }, { n = 1, c = 1, h = 1, w = 1 }]
// grid = "cdiv(n * c * h * w, block)"
// block = 256
// reference = "reference.py:bias_nchw"
// [args]
// x = "inout float32[n, c, h, w] ~ normal"
// bias = "in float32[c] ~ normal"
// n = "int64"
// c = "int64"
// h = "int64"
// w = "int64"
// ///
__global__ void bias_relu_nchw(float* x, const float* bias, long long n, long long c, long long h, long long w) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * c * h * w) return;
  long long column = at % w;
  long long row = at / w % h;
  long long channel = at / (w * h) % c;
  long long image = at / (w * h * c);
  long long where = ((image * c + channel) * h + row) * w + column;
  float sum = x[where] + bias[channel];
  x[where] = sum > 0.0f ? sum : 0.0f;
}
