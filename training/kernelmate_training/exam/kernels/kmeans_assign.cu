// k-means, assignment step: how far the nearest centre is.

// /// kernelmate
// sizes = [{ points = 256, clusters = 24, dims = 16 }, { points = 75, clusters = 5, dims = 3 }, { points = 1, clusters = 1, dims = 1 }]
// grid = "cdiv(points, block)"
// block = 64
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
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= points) return;
    dist[p] = 3.4e38f;
    for (int c = 0; c < clusters; ++c)
    {
        float d = 0;
        for (int k = 0; k < dims; ++k)
        {
            d += (P[p * dims + k] - M[c * dims + k]) * (P[p * dims + k] - M[c * dims + k]);
        }
        d = sqrt(d);
        if (d < dist[p]) dist[p] = d;
    }
}
