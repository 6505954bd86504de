// Exponential smoothing of every trace: y[t] = a * y[t-1] + (1 - a) * x[t], y[-1] = 0. A thread follows one trace.

// /// kernelmate
// sizes = [{ traces = 256, steps = 128 }, { traces = 19, steps = 75 }, { traces = 1, steps = 1 }]
// grid = "cdiv(traces, 4)"
// block = 128
// require = ["steps > 0"]
// reference = "reference.py:decay_filter"
// [args]
// x = "in float32[traces, steps] ~ normal"
// y = "out float32[traces, steps]"
// traces = "int32"
// steps = "int32"
// a = "float32 = 0.9"
// ///
__global__ void smooth_traces(const float* x, float* y, int traces, int steps, float a) {
  int trace = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (trace >= traces) return;
  float carried = 0.0f, decay = 1.0f;
  for (int i = 0; i <= lane; ++i) decay *= a;
  for (int base = 0; base < steps; base += 32) {
    int t = base + lane;
    float v = t < steps ? (1.0f - a) * x[trace * steps + t] : 0.0f;
    float power = a;
    for (int d = 1; d < 32; d <<= 1) {
      float before = __shfl_up_sync(~0u, v, d);
      if (lane >= d) v += power * before;
      power *= power;
    }
    v += decay * carried;
    if (t < steps) y[trace * steps + t] = v;
    carried = __shfl_sync(~0u, v, 31);
  }
}
