// ramp of `steps` gray levels from black to white, bent by a quadratic

// /// kernelmate
// sizes = [{ steps = 4096 }, { steps = 257 }, { steps = 2 }]
// grid = "cdiv(steps, 128)"
// block = 128
// require = ["steps > 1"]
// reference = "reference.py:gamma_ramp"
// tolerance = { rtol = 1e-5, atol = 1e-6 }
// [args]
// ramp = "out float32[steps]"
// weight = "in float32[steps] ~ uniform(0.5, 1)"
// steps = "int32"
// ///
__global__ void gamma_ramp(float *ramp, const float *weight, int steps)
{
    int level = blockIdx.x * blockDim.x + threadIdx.x;
    if (level < steps) {
        float x = level / (steps - 1);
        ramp[level] = weight[level] * x * x;
    }
}
