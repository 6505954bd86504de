// /// kernelmate
// sizes = [{ n = 4096 }, { n = 1024 }, { n = 4 }]
// grid = "cdiv(n // 4, block)"
// block = 128
// require = ["n % 4 == 0"]
// reference = "x + x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void unpromised(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 4) return;
  const float4 v = reinterpret_cast<const float4*>(x)[i];
  reinterpret_cast<float4*>(y)[i] = make_float4(v.x + v.x, v.y + v.y, v.z + v.z, v.w + v.w);
}
