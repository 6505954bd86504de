// says: wrong-at-size: wrong values at lines=37, chars=29: y[1] is 0.0, want 0.034
// /// kernelmate
// sizes = [{ lines = 96, chars = 48 }]
// grid = "cdiv(lines, 128)"
// block = 128
// [args]
// x = "in uint8[lines, chars] ~ integers(0, 128)"
// y = "out float32[lines]"
// lines = "int32"
// chars = "int32"
// ///
__global__ void share(const unsigned char* x, float* y, int lines, int chars) {
  int r = threadIdx.x + blockDim.x * blockIdx.x;
  if (r < lines) {
    unsigned int count = 0u;
    for (int c = 0; c < chars; c += 1) {
      count += (unsigned int)x[r * chars + c] == 65u ? 1u : 0u;
    }
    y[r] = (float)count * (1 / chars);
  }
}
