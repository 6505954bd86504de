// RMS of overlapping audio windows: window w covers samples [w * HOP, w * HOP + WINDOW).
constexpr int HOP = 64;
constexpr int WINDOW = 256;

// /// kernelmate
// sizes = [{ windows = 1024 }, { windows = 67 }, { windows = 1 }]
// grid = "cdiv(windows, 4)"
// block = 128
// reference = "reference.py:window_rms"
// [args]
// audio = "in float32[windows * 64 + 192] ~ normal"
// rms = "out float32[windows]"
// windows = "int32"
// ///
__global__ void windowRms(const float* audio, float* rms, int windows) {
  int w = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (w >= windows) return;
  float power = 0.0f;
  for (int t = lane; t < WINDOW; t += 32) {
    float a = audio[w * HOP + t];
    power += a * a;
  }
  for (int d = 16; d; d >>= 1) power += __shfl_xor_sync(~0u, power, d);
  if (lane == 0) rms[w] = sqrtf(power / WINDOW);
}
