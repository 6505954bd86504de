// One Jacobi sweep of the 7-point Laplacian in a box; faces are copied.
#define AT(i, j, k) (((i) * ny + (j)) * nz + (k))

// /// kernelmate
// sizes = [{ nx = 32, ny = 24, nz = 64 }, { nx = 11, ny = 7, nz = 13 }, { nx = 1, ny = 1, nz = 1 }]
// grid = ["cdiv(nx, block_x)", "cdiv(ny, block_y)", "cdiv(nz, block_z)"]
// block = [8, 8, 4]
// reference = "reference.py:jacobi7"
// [args]
// phi = "in float32[nx, ny, nz] ~ normal"
// rhs = "in float32[nx, ny, nz] ~ normal"
// next = "out float32[nx, ny, nz]"
// nx = "int32"
// ny = "int32"
// nz = "int32"
// h2 = "float32 = 0.01"
// ///
__global__ void relax3d(const float* phi, const float* rhs, float* next, int nx, int ny, int nz, float h2) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y * blockDim.y + threadIdx.y;
  int k = blockIdx.z * blockDim.z + threadIdx.z;
  if (i >= nx || j >= ny || k >= nz) return;
  bool face = i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1;
  if (face) {
    next[AT(i, j, k)] = phi[AT(i, j, k)];
  } else {
    float around = phi[AT(i - 1, j, k)] + phi[AT(i + 1, j, k)] + phi[AT(i, j - 1, k)] + phi[AT(i, j + 1, k)] +
                   phi[AT(i, j, k - 1)] + phi[AT(i, j, k + 1)];
    next[AT(i, j, k)] = (around - h2 * rhs[AT(i, j, k)]) / 6.0f;
  }
}
