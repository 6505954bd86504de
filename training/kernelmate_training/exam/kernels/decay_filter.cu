// Exponential smoothing of every trace: y[t] = a * y[t-1] + (1 - a) * x[t], y[-1] = 0. A thread follows one trace.

// /// kernelmate
// sizes = [{ traces = 256, steps = 128 }, { traces = 19, steps = 75 }, { traces = 1, steps = 1 }]
// grid = "cdiv(traces, block)"
// block = 32
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
  int trace = blockIdx.x * blockDim.x + threadIdx.x;
  if (trace >= traces) return;
  y[trace * steps] = (1.0f - a) * x[trace * steps];
  for (int t = 1; t < steps; ++t) {
    y[trace * steps + t] = a * y[trace * steps + t - 1] + (1.0f - a) * x[trace * steps + t];
  }
}
