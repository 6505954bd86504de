// The four best scores of each candidate list, best first (beam search). Short lists are filled with -1e30.

// /// kernelmate
// sizes = [{ lists = 192, length = 100 }, { lists = 31, length = 9 }, { lists = 1, length = 2 }]
// grid = "cdiv(lists, 4)"
// block = 128
// reference = "reference.py:top_four"
// [args]
// score = "in float32[lists, length] ~ normal"
// best = "out float32[lists, 4]"
// lists = "int32"
// length = "int32"
// ///
__device__ void insert(float s, float& a, float& b, float& c, float& d) {
  d = fmaxf(d, fminf(c, s));
  c = fmaxf(c, fminf(b, s));
  b = fmaxf(b, fminf(a, s));
  a = fmaxf(a, s);
}

__global__ void top_four(const float* score, float* best, int lists, int length) {
  const int list = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (list >= lists) return;
  float a = -1e30f, b = -1e30f, c = -1e30f, d = -1e30f;
  for (int i = lane; i < length; i += 32) insert(score[list * length + i], a, b, c, d);
  for (int o = 16; o; o >>= 1) {
    const float e = __shfl_xor_sync(~0u, a, o), f = __shfl_xor_sync(~0u, b, o);
    const float g = __shfl_xor_sync(~0u, c, o), h = __shfl_xor_sync(~0u, d, o);
    insert(e, a, b, c, d);
    insert(f, a, b, c, d);
    insert(g, a, b, c, d);
    insert(h, a, b, c, d);
  }
  if (lane == 0) {
    best[list * 4 + 0] = a;
    best[list * 4 + 1] = b;
    best[list * 4 + 2] = c;
    best[list * 4 + 3] = d;
  }
}
