#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <cuda.h>

#define RADIUS 4
#define TILE 16

__constant__ float c_filter[2 * RADIUS + 1];
__device__ unsigned int d_blocks_done;

static float h_filter[2 * RADIUS + 1];

static inline __device__ int clampi(int v, int lo, int hi) { return min(max(v, lo), hi); }

extern "C" __global__ void convolve_rows(const float *src, float *dst, int width, int height)
{
    __shared__ float tile[TILE][TILE + 2 * RADIUS];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    int yy = clampi(y, 0, height - 1);
    for (int i = threadIdx.x; i < TILE + 2 * RADIUS; i += TILE)
        tile[threadIdx.y][i] = src[yy * width + clampi((int)(blockIdx.x * TILE) + i - RADIUS, 0, width - 1)];
    __syncthreads();
    if (x >= width || y >= height) return;
    float sum = 0.f;
    for (int k = -RADIUS; k <= RADIUS; k++) sum += c_filter[k + RADIUS] * tile[threadIdx.y][threadIdx.x + RADIUS + k];
    dst[y * width + x] = sum;
    if (threadIdx.x == 0 && threadIdx.y == 0) atomicInc(&d_blocks_done, gridDim.x * gridDim.y);
}

static void make_filter(float sigma)
{
    float total = 0.f;
    for (int i = -RADIUS; i <= RADIUS; i++) total += h_filter[i + RADIUS] = expf(-(i * i) / (2.f * sigma * sigma));
    for (int i = 0; i <= 2 * RADIUS; i++) h_filter[i] /= total;
    cudaMemcpyToSymbol(c_filter, h_filter, sizeof(h_filter));
}

int main(int argc, char *argv[])
{
    int width = argc > 1 ? atoi(argv[1]) : 640, height = argc > 2 ? atoi(argv[2]) : 480;
    float *src, *dst;
    make_filter(1.5f);
    cudaMalloc((void **)&src, width * height * sizeof(float));
    cudaMalloc((void **)&dst, width * height * sizeof(float));
    dim3 block(TILE, TILE), grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE);
    convolve_rows<<<grid, block>>>(src, dst, width, height);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return EXIT_SUCCESS;
}
