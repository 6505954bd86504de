// Box blur with clamped borders, radius from the command line. r/c naming as in the MATLAB original.
#define CLAMP(v, lo, hi) ((v) < (lo) ? (lo) : ((v) > (hi) ? (hi) : (v)))

// /// kernelmate
// sizes = [{ nr = 256, nc = 320, radius = 3 }, { nr = 39, nc = 101, radius = 2 }, { nr = 1, nc = 1, radius = 1 }]
// grid = ["cdiv(nr, block_x)", "cdiv(nc, block_y)"]
// block = [32, 8]
// require = ["nr > 0", "nc > 0", "radius < 16"]
// reference = "reference.py:box_blur"
// [args]
// src = "in float32[nr, nc]"
// dst = "out float32[nr, nc]"
// nr = "int32"
// nc = "int32"
// radius = "int32"
// ///
__global__ void boxBlur(float const *src, float *dst, int nr, int nc, int radius)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y * blockDim.y + threadIdx.y;

    if (r < nr && c < nc)
    {
        float total = 0;
        for (int i = -radius; i <= radius; i++)
            for (int j = -radius; j <= radius; j++)
            {
                int rr = CLAMP(r + i, 0, nr - 1);
                int cc = CLAMP(c + j, 0, nc - 1);
                total += src[rr * nc + cc];
            }
        dst[r * nc + c] = total / ((2 * radius + 1) * (2 * radius + 1));
    }
}
