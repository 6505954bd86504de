// k-means, assignment step: how far the nearest centre is.

// /// kernelmate
// sizes = [{ points = 256, clusters = 24, dims = 16 }, { points = 75, clusters = 5, dims = 3 }, { points = 1, clusters = 1, dims = 1 }]
// grid = "cdiv(points, 4)"
// block = 128
// require = ["clusters > 0", "dims > 0"]
// reference = "reference.py:kmeans_assign"
// tolerance = { rtol = 1e-4, atol = 1e-5 }
// [args]
// P = "in float32[points, dims] ~ normal"
// M = "in float32[clusters, dims] ~ normal"
// dist = "out float32[points]"
// points = "int32"
// clusters = "int32"
// dims = "int32"
// ///
__global__ void assignClusters(const float* P, const float* M, float* dist, int points, int clusters, int dims)
{
    int p = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p >= points) return;
    float nearest = 3.4e38f;
    for (int c = lane; c < clusters; c += 32)
    {
        float d = 0;
        for (int k = 0; k < dims; ++k)
        {
            float t = P[p * dims + k] - M[c * dims + k];
            d += t * t;
        }
        nearest = fminf(nearest, d);
    }
    for (int o = 16; o; o >>= 1) nearest = fminf(nearest, __shfl_xor_sync(~0u, nearest, o));
    if (lane == 0) dist[p] = sqrtf(nearest);
}
