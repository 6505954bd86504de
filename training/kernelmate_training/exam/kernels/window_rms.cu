// RMS of overlapping audio windows: window w covers samples [w * HOP, w * HOP + WINDOW).
constexpr int HOP = 64;
constexpr int WINDOW = 256;

// /// kernelmate
// sizes = [{ windows = 1024 }, { windows = 67 }, { windows = 1 }]
// grid = "cdiv(windows, block)"
// block = 64
// reference = "reference.py:window_rms"
// [args]
// audio = "in float32[windows * 64 + 192] ~ normal"
// rms = "out float32[windows]"
// windows = "int32"
// ///
__global__ void windowRms(const float* audio, float* rms, int windows) {
  int w = threadIdx.x + blockIdx.x * blockDim.x;
  if (w >= windows) return;
  float power = 0.0f;
  for (int t = 0; t < WINDOW; ++t) {
    float a = audio[w * HOP + t];
    power += a * a;
  }
  rms[w] = sqrtf(power / WINDOW);
}
