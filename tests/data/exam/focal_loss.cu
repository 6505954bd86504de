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
    float p = 1.0f / (1.0f + expf(-logit[i]));
    float pt = target[i] == 1 ? p : 1.0f - p;
    float alpha = target[i] == 1 ? 0.25f : 0.75f;
    loss[i] = -alpha * (1.0f - pt) * (1.0f - pt) * logf(pt + 1e-7f);
  }
}
