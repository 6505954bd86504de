// One Jacobi step of the heat equation with a five-point stencil; the border is copied.

// /// kernelmate
// sizes = [{ ny = 8192, nx = 8192 }, { ny = 61, nx = 130 }, { ny = 2, nx = 2 }]
// grid = ["cdiv(nx, 32)", "cdiv(ny, 8)"]
// block = [32, 8]
// reference = "reference.py:jacobi_step"
// [args]
// u = "in float32[ny, nx]"
// v = "out float32[ny, nx]"
// ny = "int32"
// nx = "int32"
// c = "float32 = 0.2"
// ///
__global__ void jacobi(const float* u, float* v, int ny, int nx, float c) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= nx || y >= ny) return;
  int i = y * nx + x;
  if (x == 0 || y == 0 || x == nx - 1 || y == ny - 1) {
    v[i] = u[i];
  } else {
    v[i] = u[i] + c * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] - 4.0f * u[i]);
  }
}
