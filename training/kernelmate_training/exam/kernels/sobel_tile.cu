// Sobel gradient magnitude (|gx| + |gy|, saturated) of an 8 bit image; a tile with a border of one pixel is staged.
#define BW 32
#define BH 8

// /// kernelmate
// sizes = [{ rows = 192, cols = 256 }, { rows = 21, cols = 50 }, { rows = 1, cols = 1 }]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 8)"]
// block = [32, 8]
// reference = "reference.py:sobel"
// [args]
// img = "in uint8[rows, cols] ~ integers(0, 256)"
// mag = "out uint8[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void sobel(const unsigned char *img, unsigned char *mag, int rows, int cols)
{
    __shared__ float patch[BH + 2][BW + 2];
    __shared__ float gradient[BH][BW];

    int x = blockIdx.x * BW + threadIdx.x;
    int y = blockIdx.y * BH + threadIdx.y;

    for (int r = threadIdx.y; r < BH + 2; r += BH) {
        for (int c = threadIdx.x; c < BW + 2; c += BW) {
            int yy = blockIdx.y * BH + r - 1;
            int xx = blockIdx.x * BW + c - 1;
            bool inside = yy >= 0 && yy < rows && xx >= 0 && xx < cols;
            patch[r][c] = inside ? img[yy * cols + xx] : 0.0f;
        }
    }
    __syncthreads();

    int i = threadIdx.y + 1;
    int j = threadIdx.x + 1;
    float gx = patch[i - 1][j + 1] + 2.0f * patch[i][j + 1] + patch[i + 1][j + 1]
             - patch[i - 1][j - 1] - 2.0f * patch[i][j - 1] - patch[i + 1][j - 1];
    float gy = patch[i + 1][j - 1] + 2.0f * patch[i + 1][j] + patch[i + 1][j + 1]
             - patch[i - 1][j - 1] - 2.0f * patch[i - 1][j] - patch[i - 1][j + 1];
    gradient[threadIdx.y][threadIdx.x] = fminf(255.0f, fabsf(gx) + fabsf(gy));
    __syncthreads();

    if (y < rows && x < cols)
        mag[y * cols + x] = (unsigned char)gradient[threadIdx.y][threadIdx.x];
}
