// says: out-of-bounds-write: line 3: writes 4 bytes at byte 4000 of y, which has 4000 bytes
// says: compile-error: line 3: identifier "i" is undefined
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];
}
