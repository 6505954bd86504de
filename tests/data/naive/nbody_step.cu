// Accelerations of all bodies by all bodies.
struct Body {
  float x, y, z, mass;
};

// /// kernelmate
// sizes = [{ count = 512 }, { count = 93 }, { count = 1 }]
// grid = "cdiv(count, block)"
// block = 64
// reference = "reference.py:nbody_step"
// tolerance = { rtol = 1e-3, atol = 1e-3 }
// [args]
// bodies = "in float32[count, 4] ~ uniform(0.1, 1)"
// acc = "out float32[count, 3]"
// count = "int32"
// eps2 = "float32 = 0.01"
// ///
__global__ void nbody(const Body* bodies, float* acc, int count, float eps2) {
  int me = blockIdx.x * blockDim.x + threadIdx.x;
  if (me < count) {
    acc[me * 3 + 0] = 0;
    acc[me * 3 + 1] = 0;
    acc[me * 3 + 2] = 0;
    for (int other = 0; other < count; other++) {
      float dx = bodies[other].x - bodies[me].x;
      float dy = bodies[other].y - bodies[me].y;
      float dz = bodies[other].z - bodies[me].z;
      float inv = 1.0 / sqrt(dx * dx + dy * dy + dz * dz + eps2);
      float w = bodies[other].mass * inv * inv * inv;
      acc[me * 3 + 0] += dx * w;
      acc[me * 3 + 1] += dy * w;
      acc[me * 3 + 2] += dz * w;
    }
  }
}
