// Saved on Windows: every line ends in CR LF.
#include <cstdio>
#include <windows.h>

__global__ void scale(float *data, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] *= factor;
}

int main()
{
    float *data;
    cudaMalloc(&data, 1024);
    scale<<<1, 256>>>(data, 2.0f, 256);
    return 0;
}
