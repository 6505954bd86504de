// Tiles of 128 x 128 with 8 x 8 results per thread and double-buffered shared memory; bias and ReLU at the end.

// /// kernelmate
// sizes = [{ batch = 2048, outs = 2048, ins = 2048 }, { batch = 37, outs = 61, ins = 19 }, { batch = 1, outs = 1, ins = 1 }]
// grid = ["cdiv(outs, 128)", "cdiv(batch, 128)"]
// block = 256
// reference = "../naive/reference.py:linear_relu"
// [args]
// x = "in float32[batch, ins]"
// weight = "in float32[outs, ins]"
// bias = "in float32[outs]"
// y = "out float32[batch, outs]"
// batch = "int32"
// outs = "int32"
// ins = "int32"
// ///
__global__ void __launch_bounds__(256, 2)
linear_relu(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
            float* __restrict__ y, int batch, int outs, int ins) {
  __shared__ __align__(16) float xs[2][8][132], ws[2][8][132];
  int t = threadIdx.x, top = blockIdx.y * 128, left = blockIdx.x * 128;
  int line = t / 2, first = t % 2 * 4, ty = t / 16 * 4, tx = t % 16 * 4;
  bool wide = ins % 4 == 0 && ((size_t)x | (size_t)weight) % 16 == 0;
  bool in_x = top + line < batch, in_w = left + line < outs;
  x += in_x ? (size_t)(top + line) * ins : 0;
  weight += in_w ? (size_t)(left + line) * ins : 0;
  float acc[8][8] = {};
  __align__(16) float px[4], pw[4];
  auto fetch = [&](int k) {
    if (wide) {
      float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      bool in = k + first < ins;
      *reinterpret_cast<float4*>(px) = in_x && in ? *reinterpret_cast<const float4*>(x + k + first) : zero;
      *reinterpret_cast<float4*>(pw) = in_w && in ? *reinterpret_cast<const float4*>(weight + k + first) : zero;
      return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
      bool in = k + first + e < ins;
      px[e] = in_x && in ? x[k + first + e] : 0.0f;
      pw[e] = in_w && in ? weight[k + first + e] : 0.0f;
    }
  };
  fetch(0);
  for (int k = 0, at = 0; k < ins; k += 8, at ^= 1) {
#pragma unroll
    for (int e = 0; e < 4; e++) xs[at][first + e][line] = px[e], ws[at][first + e][line] = pw[e];
    __syncthreads();
    if (k + 8 < ins) fetch(k + 8);  // the next tile travels while this one is multiplied
#pragma unroll
    for (int d = 0; d < 8; d++) {
      __align__(16) float p[8], q[8];
      *reinterpret_cast<float4*>(p) = *reinterpret_cast<float4*>(&xs[at][d][ty]);
      *reinterpret_cast<float4*>(p + 4) = *reinterpret_cast<float4*>(&xs[at][d][ty + 64]);
      *reinterpret_cast<float4*>(q) = *reinterpret_cast<float4*>(&ws[at][d][tx]);
      *reinterpret_cast<float4*>(q + 4) = *reinterpret_cast<float4*>(&ws[at][d][tx + 64]);
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] += p[i] * q[j];
    }
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    int o = left + tx + j % 4 + j / 4 * 64;
    float b = o < outs ? bias[o] : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) acc[i][j] = fmaxf(acc[i][j] + b, 0.0f);
  }
  bool packed = outs % 4 == 0 && (size_t)y % 16 == 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int r = top + ty + i % 4 + i / 4 * 64;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      int o = left + tx + j * 16;
      if (r >= batch || o >= outs) continue;
      float* to = y + (size_t)r * outs + o;
      if (packed) {
        *reinterpret_cast<float4*>(to) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (o + e < outs) to[e] = acc[i][j + e];
      }
    }
  }
}
