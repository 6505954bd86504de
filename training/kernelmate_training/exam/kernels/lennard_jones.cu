// Lennard-Jones energy of every atom with all others (reduced units), no cutoff, no periodic images.

// /// kernelmate
// sizes = [{ atoms = 96 }, { atoms = 61 }, { atoms = 2 }]
// grid = "cdiv(atoms, 32)"
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
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= atoms) return;
  float e = 0.0f;
  for (int j = 0; j < atoms; ++j) {
    if (j == i) continue;
    float r = sqrtf((x[i] - x[j]) * (x[i] - x[j]) + (y[i] - y[j]) * (y[i] - y[j]) + (z[i] - z[j]) * (z[i] - z[j]));
    e += 4.0f * (powf(1.0f / r, 12.0f) - powf(1.0f / r, 6.0f));
  }
  energy[i] = 0.5f * e;
}
