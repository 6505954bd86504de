// interleaved RGBA bytes to planes: plane[k][p] = pixel[p][k]

// /// kernelmate
// sizes = [{ pixels = 6000 }, { pixels = 321 }, { pixels = 1 }]
// grid = "cdiv(pixels, 128)"
// block = 128
// reference = "px.T"
// [args]
// px = "in uint8[pixels, 4] ~ integers(0, 256)"
// plane = "out uint8[4, pixels]"
// pixels = "int32"
// ///
__global__ void to_planes(const unsigned char* px, unsigned char* plane, int pixels) {
  int p = blockDim.x * blockIdx.x + threadIdx.x;
  if (p < pixels) {
    for (int k = 0; k < 4; k++) plane[p * 4 + k] = px[p * 4 + k];
  }
}
