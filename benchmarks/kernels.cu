// The three kernels on which emulators are compared; numba_simulator.py has the same in Python.
#define TILE 16
#define THREADS 128

extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void matmul(const float* left, const float* right, float* out, int n) {
    __shared__ float tile_left[TILE][TILE], tile_right[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx;
    float total = 0.0f;
    for (int step = 0; step < n / TILE; step++) {
        tile_left[ty][tx] = left[row * n + step * TILE + tx];
        tile_right[ty][tx] = right[(step * TILE + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) total += tile_left[ty][k] * tile_right[k][tx];
        __syncthreads();
    }
    out[row * n + column] = total;
}

extern "C" __global__ void softmax(const float* x, float* y, int columns) {
    __shared__ float shared[THREADS];
    int t = threadIdx.x;
    const float* in = x + (size_t)blockIdx.x * columns;
    float* out = y + (size_t)blockIdx.x * columns;
    float top = -INFINITY;
    for (int i = t; i < columns; i += THREADS) top = fmaxf(top, in[i]);
    shared[t] = top;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) shared[t] = fmaxf(shared[t], shared[t + step]);
        __syncthreads();
    }
    top = shared[0];
    __syncthreads();
    float total = 0.0f;
    for (int i = t; i < columns; i += THREADS) total += expf(in[i] - top);
    shared[t] = total;
    __syncthreads();
    for (int step = THREADS / 2; step > 0; step /= 2) {
        if (t < step) shared[t] += shared[t + step];
        __syncthreads();
    }
    total = shared[0];
    for (int i = t; i < columns; i += THREADS) out[i] = expf(in[i] - top) / total;
}
