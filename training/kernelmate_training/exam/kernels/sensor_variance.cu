// Variance of each sensor's readings: mean of squares minus square of the mean. One warp per sensor.

// /// kernelmate
// sizes = [{ sensors = 128, readings = 512 }, { sensors = 9, readings = 77 }, { sensors = 1, readings = 1 }]
// grid = "cdiv(sensors, 4)"
// block = 128
// require = ["readings > 0"]
// reference = "r.var(axis=1)"
// tolerance = { rtol = 2e-2, atol = 2e-3 }
// [args]
// r = "in float32[sensors, readings] ~ uniform(99, 101)"
// var = "out float32[sensors]"
// sensors = "int32"
// readings = "int32"
// ///
__global__ void sensorVariance(const float *r, float *var, int sensors, int readings)
{
    int sensor = blockIdx.x * 4 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (sensor >= sensors) return;

    float sum = 0.0f, squares = 0.0f;
    for (int i = lane; i < readings; i += 32) {
        float x = r[sensor * readings + i];
        sum += x;
        squares += x * x;
    }
    for (int delta = 16; delta > 0; delta >>= 1) {
        sum += __shfl_xor_sync(0xffffffff, sum, delta);
        squares += __shfl_xor_sync(0xffffffff, squares, delta);
    }
    if (lane == 0) {
        float mean = sum / readings;
        var[sensor] = squares / readings - mean * mean;
    }
}
