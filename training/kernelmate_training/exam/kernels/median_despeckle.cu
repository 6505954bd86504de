// 3x3 median, edges replicated: sorts the nine neighbours and takes the middle one.

// /// kernelmate
// sizes = [{ H = 48, W = 96 }, { H = 13, W = 19 }, { H = 1, W = 1 }]
// grid = ["cdiv(W, 32)", "cdiv(H, 4)"]
// block = [32, 4]
// require = ["H > 0", "W > 0"]
// reference = "reference.py:median_despeckle"
// [args]
// noisy = "in float32[H, W] ~ uniform(0, 1)"
// clean = "out float32[H, W]"
// H = "int32"
// W = "int32"
// ///
__global__ void despeckle(const float* noisy, float* clean, int H, int W) {
  int px = blockIdx.x * blockDim.x + threadIdx.x;
  int py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= W || py >= H) return;

  float window[9];
  int used = 0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++) {
      int sx = min(max(px + dx, 0), W - 1);
      int sy = min(max(py + dy, 0), H - 1);
      window[used++] = noisy[sy * W + sx];
    }

  // bubble sort
#pragma unroll 1
  for (int a = 0; a < 8; a++) {
#pragma unroll 1
    for (int b = 0; b < 8 - a; b++) {
      if (window[b] > window[b + 1]) {
        float tmp = window[b];
        window[b] = window[b + 1];
        window[b + 1] = tmp;
      }
    }
  }
  clean[py * W + px] = window[4];
}
