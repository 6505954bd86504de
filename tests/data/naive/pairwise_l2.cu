// Squared distances between two sets of points, dim features each.

// /// kernelmate
// sizes = [{ na = 192, nb = 160, dim = 96 }, { na = 35, nb = 51, dim = 19 }, { na = 1, nb = 1, dim = 1 }]
// grid = ["cdiv(na, 32)", "cdiv(nb, 8)"]
// block = [32, 8]
// reference = "reference.py:pairwise_l2"
// [args]
// ptsA = "in float32[na, dim]"
// ptsB = "in float32[nb, dim]"
// dist = "out float32[na, nb]"
// na = "int32"
// nb = "int32"
// dim = "int32"
// ///
__global__ void pairwiseL2(const float* __restrict__ ptsA, const float* __restrict__ ptsB, float* __restrict__ dist,
                           int na, int nb, int dim)
{
    int a = blockIdx.x * blockDim.x + threadIdx.x;
    int b = blockIdx.y * blockDim.y + threadIdx.y;
    if (a >= na || b >= nb) return;

    float acc = 0.0f;
    for (int d = 0; d < dim; ++d)
    {
        float diff = ptsA[a * dim + d] - ptsB[b * dim + d];
        acc += diff * diff;
    }
    dist[a * nb + b] = acc;
}
