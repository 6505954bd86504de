// y = act(W x + b) for a batch. Activation by template, weights stored [outputs][inputs] as the framework gives them.
struct Relu {
  __device__ static float apply(float v) { return v > 0.f ? v : 0.f; }
};
struct Identity {
  __device__ static float apply(float v) { return v; }
};

// /// kernelmate
// sizes = [{ batch = 4, inputs = 192, outputs = 256 }, { batch = 3, inputs = 45, outputs = 19 }, { batch = 1, inputs = 1, outputs = 1 }]
// grid = ["cdiv(outputs, block)", "batch"]
// block = 128
// instances = ["dense<Relu>"]
// reference = "reference.py:dense_relu"
// [args]
// x = "in float32[batch, inputs] ~ normal"
// W = "in float32[outputs, inputs] ~ normal"
// b = "in float32[outputs] ~ normal"
// y = "out float32[batch, outputs]"
// inputs = "int32"
// outputs = "int32"
// ///
template <class Activation>
__global__ void dense(const float *x, const float *W, const float *b, float *y, int inputs, int outputs)
{
  const int o = blockIdx.x * blockDim.x + threadIdx.x;
  if (o >= outputs) return;
  float dot = b[o];
  for (int i = 0; i < inputs; ++i) dot += W[o * inputs + i] * x[blockIdx.y * inputs + i];
  y[blockIdx.y * outputs + o] = Activation::apply(dot);
}
