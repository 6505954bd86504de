// Rotary position embedding on queries, in place: each pair (d, d + dim/2) of a head is rotated by the angle of its
// token's position. Cosines and sines come from a table.

// /// kernelmate
// sizes = [
//   { tokens = 128, heads = 8, dim = 64, context = 512 },
//   { tokens = 37, heads = 3, dim = 26, context = 53 },
//   { tokens = 1, heads = 1, dim = 2, context = 1 },
// ]
// grid = ["tokens", "heads"]
// block = "min(256, cdiv(max(dim, 2) // 2, 32) * 32)"
// require = ["dim % 2 == 0", "context > 0"]
// reference = "reference.py:rope"
// [args]
// q = "inout float32[tokens, heads, dim]"
// cosines = "in float32[context, dim // 2] ~ uniform(-1, 1)"
// sines = "in float32[context, dim // 2] ~ uniform(-1, 1)"
// positions = "in int32[tokens] ~ integers(0, context)"
// dim = "int32"
// ///
__global__ void rope(float* q, const float* cosines, const float* sines, const int* positions, int dim) {
  const int half = dim / 2;
  const size_t base = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * dim;
  const size_t angle = (size_t)positions[blockIdx.x] * half;
  for (int d = threadIdx.x; d < half; d += blockDim.x) {
    const float c = cosines[angle + d], s = sines[angle + d];
    const float low = q[base + d], high = q[base + half + d];
    q[base + d] = low * c - high * s;
    q[base + half + d] = low * s + high * c;
  }
}
