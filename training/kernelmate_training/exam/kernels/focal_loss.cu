// focal loss per element, gamma 2, for binary targets

// /// kernelmate
// sizes = [{ total = 24576 }, { total = 1001 }, { total = 1 }]
// grid = "cdiv(total, 256)"
// block = 256
// reference = "reference.py:focal_loss"
// tolerance = { rtol = 1e-4, atol = 1e-5 }
// [args]
// logit = "in float32[total] ~ uniform(-6, 6)"
// target = "in int32[total] ~ integers(0, 2)"
// loss = "out float32[total]"
// total = "int32"
// ///
__global__ void focalLoss(const float *logit, const int *target, float *loss, int total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < total) {
    float p = 1.0 / (1.0 + exp(-logit[i]));
    float pt = target[i] == 1 ? p : 1.0 - p;
    float alpha = target[i] == 1 ? 0.25 : 0.75;
    loss[i] = -alpha * pow(1.0 - pt, 2.0) * log(pt + 1e-7);
  }
}
