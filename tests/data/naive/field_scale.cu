// Multiplies a 3-D field by a profile along z. x is the slowest index of the array, and thread x walks it.

// /// kernelmate
// sizes = [{ nx = 64, ny = 48, nz = 64 }, { nx = 13, ny = 9, nz = 21 }, { nx = 1, ny = 1, nz = 1 }]
// grid = ["cdiv(nx, 8)", "cdiv(ny, 8)", "cdiv(nz, 4)"]
// block = [8, 8, 4]
// reference = "reference.py:field_scale"
// [args]
// field = "inout float32[nx, ny, nz]"
// profile = "in float32[nz]"
// nx = "int32"
// ny = "int32"
// nz = "int32"
// ///
__global__ void scale_field(float *field, const float *profile, int nx, int ny, int nz) {
  const int ix = blockIdx.x * blockDim.x + threadIdx.x;
  const int iy = blockIdx.y * blockDim.y + threadIdx.y;
  const int iz = blockIdx.z * blockDim.z + threadIdx.z;
  if (ix < nx && iy < ny && iz < nz) {
    const int cell = (ix * ny + iy) * nz + iz;
    field[cell] = field[cell] * profile[iz];
  }
}
