// Gravitational acceleration of n bodies, one thread per body, all others read from global memory.

// /// kernelmate
// sizes = [{ n = 16384 }, { n = 257 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "reference.py:nbody"
// [args]
// position = "in float32[n, 3]"
// mass = "in float32[n] ~ uniform(0.1, 1)"
// acceleration = "out float32[n, 3]"
// n = "int32"
// softening = "float32 = 0.05"
// ///
__global__ void nbody(const float* position, const float* mass, float* acceleration, int n, float softening) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float xi = position[3 * i], yi = position[3 * i + 1], zi = position[3 * i + 2];
  float ax = 0.0f, ay = 0.0f, az = 0.0f;
  for (int j = 0; j < n; j++) {
    float dx = position[3 * j] - xi;
    float dy = position[3 * j + 1] - yi;
    float dz = position[3 * j + 2] - zi;
    float r2 = dx * dx + dy * dy + dz * dz + softening * softening;
    float inverse = rsqrtf(r2);
    float s = mass[j] * inverse * inverse * inverse;
    ax += s * dx;
    ay += s * dy;
    az += s * dz;
  }
  acceleration[3 * i] = ax;
  acceleration[3 * i + 1] = ay;
  acceleration[3 * i + 2] = az;
}
