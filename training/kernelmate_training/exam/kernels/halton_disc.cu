// Area of discs by quasi Monte Carlo: Halton points (bases 2 and 3) that fall into a quarter of each disc are counted.

__device__ double radical_inverse(unsigned int n, unsigned int base)
{
    double result = 0.0;
    double digit = 1.0 / base;
    while (n > 0) {
        result += digit * (n % base);
        n /= base;
        digit /= base;
    }
    return result;
}

// /// kernelmate
// sizes = [{ points = 512, discs = 24 }, { points = 301, discs = 5 }, { points = 1, discs = 1 }]
// grid = ["cdiv(points, block)", "discs"]
// block = 128
// reference = "reference.py:halton_disc"
// tolerance = { rtol = 1e-3, atol = 1 }
// [args]
// radius = "in float32[discs] ~ uniform(0.1, 1.2)"
// hits = "inout int32[discs] ~ zeros"
// points = "int32"
// ///
__global__ void quasi_area(const float *radius, int *hits, int points)
{
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < points) {
        double x = radical_inverse(p + 1, 2);
        double y = radical_inverse(p + 1, 3);
        double r = radius[blockIdx.y];
        if (sqrt(x * x + y * y) <= r)
            atomicAdd(&hits[blockIdx.y], 1);
    }
}
