// Lennard-Jones energy of every atom with all others (reduced units), no cutoff, no periodic images.

// /// kernelmate
// sizes = [{ atoms = 96 }, { atoms = 61 }, { atoms = 2 }]
// grid = "atoms"
// block = 32
// inputs = "reference.py:make_atoms"
// reference = "reference.py:lennard_jones"
// tolerance = { rtol = 2e-3, atol = 1e-3 }
// [args]
// x = "in float32[atoms]"
// y = "in float32[atoms]"
// z = "in float32[atoms]"
// energy = "out float32[atoms]"
// atoms = "int32"
// ///
__global__ void ljEnergy(const float* x, const float* y, const float* z, float* energy, int atoms) {
  int i = blockIdx.x, lane = threadIdx.x;
  float xi = x[i], yi = y[i], zi = z[i];
  float e = 0.0f;
  for (int j = lane; j < atoms; j += 32) {
    if (j == i) continue;
    float dx = xi - x[j], dy = yi - y[j], dz = zi - z[j];
    float s2 = 1.0f / (dx * dx + dy * dy + dz * dz);
    float s6 = s2 * s2 * s2;
    e += 4.0f * (s6 * s6 - s6);
  }
  for (int d = 16; d; d >>= 1) e += __shfl_xor_sync(~0u, e, d);
  if (lane == 0) energy[i] = 0.5f * e;
}
