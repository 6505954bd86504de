// Two steps of a three-point average, by the same kernel from one buffer to the other. The pointers are not const.
// /// kernelmate
// pipeline = "blur_twice"
// sizes = [{ n = 3000 }, { n = 5 }]
// reference = "../reference.py:blurred_twice"
// require = ["n >= 1"]
// [args]
// x = "in float32[n]"
// once = "scratch float32[n]"
// y = "out float32[n]"
// [[stages]]
// kernel = "blur"
// grid = "cdiv(n, block)"
// block = 128
// args = { from = "x", to = "once" }
// [[stages]]
// kernel = "blur"
// grid = "cdiv(n, block)"
// block = 128
// args = { from = "once", to = "y" }
// ///

extern "C" __global__ void blur(float* from, float* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = (from[max(i - 1, 0)] + from[i] + from[min(i + 1, n - 1)]) / 3.0f;
}
